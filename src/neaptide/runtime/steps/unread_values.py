"""Guards that a plan does not need: values that differ from call to call and that its programs do not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neaptide.frontends.objects.unread import UnreadNames
from neaptide.frontends.programs.captured_alike import changed_values
from neaptide.frontends.torch_step import without_reading
from neaptide.runtime.steps.capturing import quiet_torch
from neaptide.runtime.steps.planned_graph import PlannedVariant


class UnreadValues:
    """Finds them when a call differs in values alone; what was found to be read is not looked at again."""

    def __init__(self) -> None:
        self._read: list[UnreadNames] = []

    def relaxed(
        self, variant: PlannedVariant, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PlannedVariant | None:
        """The same plan with fewer guards, which a call fulfils; None where the call needs another plan.

        Costs one trace of the step, and nothing is planned.
        """
        captured = variant.captured
        values = changed_values(captured, captured.read_signature(args, kwargs))
        if values is None or variant.choice is not None or any(not known - values for known in self._read):
            return None
        with quiet_torch():
            found = without_reading(captured, args, kwargs, values)
        if found is None:
            self._read.append(values)
            return None
        # Programs of the first steps that are not met any more have no part in it.
        known = list(zip(captured.programs, variant.graphs, strict=True))
        planned = [
            replace(next(graph for p, graph in known if p.is_like(program)), program=program)
            for program in found.programs
        ]
        return replace(variant, captured=found, graphs=tuple(planned))
