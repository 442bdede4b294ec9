"""The encoder for differentiable tasks; PyTorch is imported here and in no other encoder."""

from tacit.encoders.neural.encoder import TaskAwareEncoder

__all__ = ["TaskAwareEncoder"]
