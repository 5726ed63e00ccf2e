"""What runs the learned posterior: PyTorch, ONNX Runtime, OpenVINO."""
