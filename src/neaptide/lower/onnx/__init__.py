"""A planned graph as a model file of ONNX."""
