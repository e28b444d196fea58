"""Gradients of ONNX models, as ONNX models."""
