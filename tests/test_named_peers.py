"""Peers can be had by name, and no default answer needs one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neaptide import named_peers
from neaptide.errors import MissingExtra
from neaptide.named_peers import (
    GRID,
    LISTS,
    RULES,
    STRUCTURES,
    peer,
)

DEFAULTS = """
import sys
from neaptide_corpus.training_steps import transformer_step
from neaptide.layout.best_layout import best_layout
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.outcome import Limits
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.problem import compile_problem

made = transformer_step(layers=2)
step = compile_problem(made.graph, made.registry)
before = baseline(step).peak_with_workspace_bytes
tight = step.persistent_bytes + (before - step.persistent_bytes) // 3
assert len(plan_sequence(step, tight, Limits(work=300)).require().sequence) > step.node_count
assert best_order(step_order_problem(step), Limits(work=300)).require().order
# No layout without a gap above the bytes live at once: all methods have their turn.
lives = [(0, 2, 3), (1, 4, 5), (3, 6, 2), (5, 7, 4), (2, 6, 3), (0, 3, 2), (4, 7, 3)]
buffers = tuple(Buffer(f"b{i}", start, end, size) for i, (start, end, size) in enumerate(lives))
assert best_layout(LayoutProblem(buffers), Limits(work=2000)).require().layout
print([name for name in sys.modules if name.startswith("neaptide_peers")])
"""


def test_all_rules_that_are_named_are_there():
    assert tuple(peer("layouts", "rules").RULES) == (*RULES, *GRID)
    assert tuple(peer("orders", "lists").LISTS) == LISTS
    assert tuple(peer("orders", "structures").STRUCTURES) == STRUCTURES


def test_no_default_answer_loads_a_peer():
    done = subprocess.run([sys.executable, "-c", DEFAULTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_peer_that_is_not_installed_is_refused_with_what_brings_it(monkeypatch):
    monkeypatch.setattr(named_peers, "_packages", tuple)
    with pytest.raises(MissingExtra, match="checkmate is not installed") as caught:
        peer("strategies", "checkmate")
    assert "pip install ./benchmarks" in caught.value.next_step
