"""The backend `neaptide` of `torch.compile`.

An installed package is found by its entry point. Importing this module registers the backend where it is not.
"""

import torch._dynamo

from neaptide.integrations.torch_compile.backend import neaptide
from neaptide.integrations.torch_compile.ledger import GraphBreakWarning, Ledger, Piece, ledgers

__all__ = ["GraphBreakWarning", "Ledger", "Piece", "ledgers", "neaptide"]

if "neaptide" not in torch._dynamo.list_backends(exclude_tags=()):  # noqa: SLF001 - a public module
    torch._dynamo.register_backend(neaptide)  # noqa: SLF001
