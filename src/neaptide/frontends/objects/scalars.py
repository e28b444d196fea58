"""Plain Python values: what guards are made of."""

from __future__ import annotations

import enum
import numbers
import sys
from typing import Any

import torch

_SCALARS = (bool, numbers.Number, str, bytes, type(None), torch.dtype, torch.device, torch.layout, enum.Enum)


def is_scalar(item: Any) -> bool:
    """Whether something is a plain value that can be compared: a number, a string, a flag, a dtype."""
    if isinstance(item, _SCALARS):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(item, numpy.generic)


def is_plain(item: Any) -> bool:
    """Whether something is plain data: a plain value, or a tuple of them."""
    return is_scalar(item) or (isinstance(item, tuple) and all(map(is_plain, item)))
