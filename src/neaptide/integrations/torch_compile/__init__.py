"""The backend `neaptide` of `torch.compile`."""

from neaptide.integrations.torch_compile.backend import neaptide

__all__ = ["neaptide"]
