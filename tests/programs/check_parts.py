"""The check of one program in parts: its regions run as loops, whatever that is good for, and do what eager does.

A search would take few of these, since most programs here have more weights than activations. What is asked here is
whether the rows of the op table are right about each operation in its place, so every region is forced.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neaptide.errors import NeaptideError
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.variants.choices import Choices
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from programs.check import SEED, Outcome, outcome_of
from programs.program import Program

MOST_REGIONS = 3


@dataclass
class InParts:
    """What came of a program in parts.

    Attributes:
        name: of the program.
        ran: regions that ran, in words.
        refused: why others did not.
        faults: other numbers than eager's beyond what sums in another order explain, or a crash.
    """

    name: str
    ran: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def check_parts(program: Program, parts: tuple[int, ...] = (2, 3)) -> InParts:
    """Run some regions of a program in parts. Whatever happens is a result, no exception."""
    found = InParts(program.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _check(program, found, parts)
        except NeaptideError as error:
            refused = outcome_of(error) is not Outcome.CRASH
            (found.refused if refused else found.faults).append(error.render())
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            found.faults.append(f"{type(error).__name__}: {error}")
    return found


def _check(program: Program, found: InParts, parts: tuple[int, ...]) -> None:
    def factory() -> tuple[Any, Any]:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002 - what users' code draws from
        return program.factory()

    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=program.name, run_operations=False)
    planned = PlannedGraph.captured(prepared.captured.steady)
    choices = Choices(registry(), planned.objection)
    begun = choices.begun(planned.graph)
    expected = verify_eager(factory, SEED)
    for choice in choices.after(begun)[:MOST_REGIONS]:
        for count in parts:
            if count > choice.length:
                continue
            made = choices.taken(choice, count)
            if made is None:
                found.refused.append(choices.refusals[-1])
                break
            graph = planned.rewritten(made.edited, made.rewrites)
            graph = replace(graph, schedule=Schedule.program_order(graph.graph))
            others = [PlannedGraph.captured(other) for other in prepared.captured.programs[1:]]
            variant = PlannedVariant(prepared.captured, (graph, *others))
            try:
                verified, _ = verify_planned(factory, SEED, contestants.rebind(variant), expected)
            except (NeaptideError, RuntimeError, TypeError, IndexError) as error:
                found.faults.append(f"{made.labels[-1]}: {type(error).__name__}: {error}")
                continue
            if verified.agrees:
                found.ran.append(made.labels[-1])
            else:
                found.faults.append(f"{made.labels[-1]}: {verified.max_abs_diff} {verified.worst}")
