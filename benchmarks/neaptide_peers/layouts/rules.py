"""Placement rules of other planners, by name: each makes one layout of a problem, without search.

They are re-implemented under this project's alignment, fixed offsets and gaps, so that all are compared on the same
problem. Their sources: TensorFlow Lite `simple_memory_arena.cc` and Pisarchyk and Lee (arXiv 2001.03288); TensorFlow Lite
Micro `greedy_memory_planner.cc`; XLA `heap_simulator.cc`, `GlobalDecreasingSizeBestFitHeap`; ONNX Runtime's memory
pattern planner, whose rule IREE's layout shares; TVM USMP `greedy.cc`; ExecuTorch and Inductor as their modules say.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from neaptide.layout.placement import RULES as OWN_RULES
from neaptide.layout.placement import Fit, Rule, by_life, by_size, order_by, place, place_below, program_order
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard
from neaptide_peers.layouts.grid import GRID_RULES, place_ordered
from neaptide_peers.layouts.hill_climb import climb_layout
from neaptide_peers.layouts.inductor_pool import place_inductor
from neaptide_peers.layouts.orders import BufferKeys
from neaptide_peers.layouts.shared_objects import place_breadth_objects, place_executorch
from neaptide_peers.layouts.tags import place_tags


def place_program_order(problem: LayoutProblem, guard: LimitGuard | None = None, *, fit: Fit) -> Layout:
    """By start, as listed among equals: FIRST is first fit online, BEST is ONNX Runtime's and IREE's rule."""
    return place(problem, program_order(problem), fit, guard)


def place_tflite(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """TensorFlow Lite: buffers that live from beginning to end, then by size descending, the earlier first; BEST."""
    whole = (problem.starts == problem.starts.min(initial=0)) & (problem.ends == problem.ends.max(initial=0))
    return place(problem, program_order(problem, ~whole, -problem.sizes), Fit.BEST, guard)


def place_tflm(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """TensorFlow Lite Micro: offsets planned offline first, then by size descending, as listed among equals; FIRST."""
    order = sorted(range(len(problem)), key=lambda index: -problem.buffers[index].nbytes)
    return place(problem, order, Fit.FIRST, guard)


def place_xla(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """XLA: by size and by life, each descending, with BEST; the smaller arena of the two, by size among equals."""
    spatial = place(problem, by_size(problem), Fit.BEST, guard)
    return place_below(problem, by_life(problem), Fit.BEST, spatial.arena_bytes, guard) or spatial


def place_tvm_size(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """TVM USMP `greedy_by_size`: by size, then number of conflicts; always on top of what is live with it."""
    keys = BufferKeys.of(problem)
    return place(problem, order_by(problem, -keys.sizes, -keys.overlaps), Fit.STACK, guard)


def place_tvm_conflicts(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """TVM USMP `greedy_by_conflicts`: by number of conflicts, then size; always on top of what is live with it."""
    return place_ordered(problem, guard, order="overlaps", fit=Fit.STACK)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "first_fit": partial(place_program_order, fit=Fit.FIRST),
        "ort": partial(place_program_order, fit=Fit.BEST),
        "tflite": place_tflite,
        "tflm": place_tflm,
        "xla": place_xla,
        "tvm_size": place_tvm_size,
        "tvm_conflicts": place_tvm_conflicts,
        "executorch": place_executorch,
        "inductor": place_inductor,
        "breadth": place_breadth_objects,
        "tags": place_tags,
        "hill_climb": climb_layout,
        **{name: rule for name, rule in GRID_RULES.items() if name not in OWN_RULES},
    }
)
"""As `neaptide.named_peers.RULES` and `GRID` name them."""
ALL_RULES: Final[Mapping[str, Rule]] = MappingProxyType({**OWN_RULES, **RULES})
"""With neaptide's own, to compare."""
