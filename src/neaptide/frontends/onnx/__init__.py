"""A model file of ONNX as a graph: read, checked, its shapes known, its shape arithmetic done."""
