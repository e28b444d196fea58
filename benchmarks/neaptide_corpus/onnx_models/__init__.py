"""Model files: light models of the onnx package, exports of small PyTorch modules, their QDQ int8 forms, irregular networks.

`catalogue` names them and writes each once into a folder of the caller's; torch and ONNX Runtime are imported only to
write what needs them. Weights and calibration data are random, from fixed seeds.
"""
