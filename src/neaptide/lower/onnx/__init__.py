"""A planned graph as a model file of ONNX, and what ONNX Runtime must be told to run it in the planned order."""
