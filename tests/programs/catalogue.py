"""All families, and the programs of some of them. A family is imported when it is asked for: some need transformers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from programs.program import Family, Program

# Module by module, the hand-written ones first.
FAMILIES: Final = (
    "dense",
    "normalised",
    "mixed_norms",
    "mixed_precision",
    "convolutions",
    "pictures",
    "attention",
    "recurrent",
    "losses",
    "indexing",
    "algebra",
    "generative",
    "forms",
    "compression",
    "optimizers",
    "checkpointed",
    "wrapped_optimizers",
    "interplay",
    "transformers_text",
    "transformers_senses",
)


def family(module: str) -> Family:
    """The programs of one module."""
    found = import_module(f"programs.{module}").FAMILY
    assert isinstance(found, Family)
    return found


def every() -> Iterator[tuple[str, Program]]:
    """Each program with the module that it is in."""
    for module in FAMILIES:
        for program in family(module):
            yield module, program


def one(module: str, name: str) -> Program:
    """A program by module and name."""
    return next(program for program in family(module) if program.name == name)
