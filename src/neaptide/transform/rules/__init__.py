"""The rules by which graphs are rewritten, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neaptide.transform.rewrite import Rule
from neaptide.transform.rules.equal_operations import EqualOperations
from neaptide.transform.rules.loop import PlacedLoop

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule.name: rule for rule in (EqualOperations(), PlacedLoop())}
)
"""Every rule that a plan may name."""
