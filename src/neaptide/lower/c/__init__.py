"""A planned ONNX graph as one C file with one static arena."""
