"""A `.tflite` file to a graph. Nothing but the standard library reads the file; torch is not imported."""
