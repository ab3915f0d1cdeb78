"""Adapted networks for other programs: ONNX, PyTorch, safetensors, JSON, Hugging Face folders."""
