"""What is known, while a step is traced, about the operation that is recorded next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from neaptide.frontends.recording.recording import CheckpointRun, Line


class Notes:
    """Current submodule, phase, checkpointed runs, observed gradient and autograd node.

    One object for each trace. Whoever changes a note puts the former one back.

    Attributes:
        module: dotted path of the submodule that runs now.
        phase: forward, backward or optimizer.
        runs: as in `Record`.
        observed: name of the gradient that the next record marks.
        sequences: of the autograd nodes whose backward runs now, innermost last.
        consumed: sequence numbers of those that ran in a backward which is not made to be differentiated.
        is_graph_kept: the backward that runs is made to be differentiated (`create_graph=True`).
        branched: names of the autograd nodes that ran another formula than in eager, by sequence number.
        replaced: sequence numbers of those whose gradients were made again, by eager's formula.
        flag_lines: where `requires_grad` of a tensor was last set, by its identity.
    """

    __slots__ = (
        "branched",
        "consumed",
        "flag_lines",
        "is_graph_kept",
        "module",
        "observed",
        "phase",
        "replaced",
        "runs",
        "sequences",
    )

    def __init__(self) -> None:
        self.module = ""
        self.phase = "forward"
        self.runs: tuple[CheckpointRun, ...] = ()
        self.observed: str | None = None
        self.sequences: list[int] = []
        self.consumed: set[int] = set()
        self.branched: dict[int, str] = {}
        self.replaced: set[int] = set()
        self.flag_lines: dict[int, Line] = {}
        self.is_graph_kept = False

    @contextlib.contextmanager
    def noted(self, **notes: Any) -> Iterator[None]:
        """Set some notes, by attribute, for the time of the context."""
        before = {name: getattr(self, name) for name in notes}
        for name, content in notes.items():
            setattr(self, name, content)
        try:
            yield
        finally:
            for name, content in before.items():
                setattr(self, name, content)
