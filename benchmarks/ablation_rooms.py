"""Cases of `ablation.py` for the smaller rooms of searches, each with one object of settings.

Orders of edited problems, and variants of a graph. Answers are the same on every machine: limits are of work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ablation_settings import changed, other_settings
from neaptide.outcome import Limits
from neaptide.planner.variants import settings as variants
from neaptide.schedule.order.portfolio import best_order
from neaptide_peers.incremental import settings as edits
from neaptide_peers.incremental.reschedule import reschedule
from neaptide_peers.incremental.settling import settle
from order_edit_cases import EDIT_KINDS, TUNING, random_edit

Case = tuple[str, ...]
Row = dict[str, Any]
Solve = Callable[[Limits], Row]
_EDITS: Final = 4  # of each kind


def _edited(case: Case) -> Solve:
    """Bytes of the peaks of some edits of one problem together, and how many are proved lowest."""
    problem = TUNING[case[0]]()
    full = best_order(problem, Limits(work=20_000)).require()

    def solve(limits: Limits) -> Row:
        settled = settle(problem, full.order, full.order_lower_bound_bytes, limits=limits)
        edits = [random_edit(problem, kind, seed) for kind in EDIT_KINDS for seed in range(_EDITS)]
        found = [reschedule(settled, edit, limits=limits) for edit in edits if edit is not None]
        bound = sum(one.require().order_lower_bound_bytes for one in found)
        peak = sum(one.require().peak_bytes for one in found)
        return {
            "value": peak,
            "missed": False,
            "bound": bound,
            "proved": bound == peak,
            "work": sum(one.work for one in found),
        }

    return solve


def _variants(case: Case) -> Solve:
    """The lowest peak within some more time, as a share of the baseline's. `work` is the limit: plans keep no count."""
    from coordinated import DEVICE, TINY
    from neaptide import zoo
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.frontends.torch_step import capture_step
    from neaptide.policy.prepared_step import PreparedStep

    model, latency = case
    spec = f"{model}@{TINY}"
    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=DEVICE)
    before = prepared.as_written().peak_with_workspace_bytes

    def solve(limits: Limits) -> Row:
        options = Ask(Budget(None, latency=latency), "default", limits, numerics="close", workers=1)
        found = prepared.plan(options).plan.programs[0].predictions
        return {
            "value": found.peak_with_workspace_bytes / before,
            "missed": False,
            "bound": None,
            "proved": False,
            "work": limits.work,
        }

    return solve


_Room = tuple[Any, tuple[Case, ...], Callable[[Case], Solve], int]
_ROOMS: Final[Mapping[str, _Room]] = MappingProxyType(
    {
        "order_edit_settings": (
            edits.SETTINGS,
            (("darts_cifar",), ("pnas_imagenet",), ("rand_wire_1",), ("local_300_2",)),
            _edited,
            20_000,
        ),
        "variants_settings": (
            variants.SETTINGS,
            (("mlp", "+10%"), ("lstm", "+10%"), ("resnet50", "+10%"), ("unet", "+5%")),
            _variants,
            1_000,
        ),
    }
)
CHANGED: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {room: changed(found[0]) for room, found in _ROOMS.items()}
)
"""By room, its settings with one number changed."""
WORK: Final[Mapping[str, int]] = MappingProxyType({room: found[3] for room, found in _ROOMS.items()})


def cases(room: str) -> list[Case]:
    """The same each time: there are few, and they are small."""
    return list(_ROOMS[room][1])


def solver(room: str, case: Case, _: Path | None = None) -> Callable[[Limits, tuple[str, ...]], Row]:
    """What solves a case, with one setting changed where one is named."""
    usual, _, make, _ = _ROOMS[room]
    answer = make(case)

    def solve(limits: Limits, without: tuple[str, ...]) -> Row:
        with other_settings(usual, CHANGED[room][without[0]] if without else usual):
            return answer(limits)

    return solve


SOLVERS: Final[Mapping[str, Callable[..., Callable[[Limits, tuple[str, ...]], Row]]]] = MappingProxyType(
    {room: partial(solver, room) for room in _ROOMS}
)
