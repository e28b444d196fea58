"""What ONNX Runtime allocates beside results: measured in child processes under a counting allocator.

Nothing here imports onnx or onnxruntime but `child` and `one_node`, which run in a process of their own.
"""
