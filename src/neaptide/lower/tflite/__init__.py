"""A planned graph back to a `.tflite` file, for TensorFlow Lite Micro: its operators in a new order, tensors at offsets."""
