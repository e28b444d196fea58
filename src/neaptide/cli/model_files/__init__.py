"""Commands on model files: ONNX and TensorFlow Lite."""
