"""One catalogue of training steps, and what comes of them: captured, costed and planned at most once a run of the tests.

A step goes by its factory: a function of a module (`support.steps` has those of several rooms), or one of the zoo. Graphs are kept
in files that all processes of one run share; each run begins without any. A capture and what is made of it hold live objects:
they are made once in each process, on objects that no test gets to run. A test that runs a step makes one of its own and puts
the capture on it (`captured_on`). `damaged` names the steps whose shared objects somebody has changed all the same.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, Final, Unpack

import torch
from filelock import FileLock

from neaptide.ask import Ask
from neaptide.errors import PlanMismatch
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.torch_step import CaptureOptions, capture_step, rebind_step
from neaptide.ir.graph import Graph
from neaptide.policy.costed_step import CostOptions
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing.contestants import build
from neaptide.runtime.steps.planned_graph import StepPlan

Factory = Callable[[], tuple[Callable[..., Any], Any]]

_FOLDER: Final = "CATALOGUE_OF_TESTS"  # of this run, set by `conftest`
_MADE: Final[dict[str, Any]] = {}
_TRACED: Final[dict[tuple[CodeType, str], list[CapturedStep]]] = {}
_CAPTURED: Final[dict[str, tuple[CapturedStep, str]]] = {}  # with the fingerprint of their objects


def captured(factory: Factory, **how: Unpack[CaptureOptions]) -> CapturedStep:
    """The capture of a step on objects that are nobody's."""
    name = _name(factory, how)
    if name not in _CAPTURED:
        step, batch = build(factory, 0)
        found = capture_step(step, (batch,), **how)
        _CAPTURED[name] = found, _fingerprint(found)
    return _CAPTURED[name][0]


def captured_on(factory: Factory, step: Callable[..., Any], batch: Any) -> CapturedStep:
    """The capture, put on a step that a test has made: nothing is traced for it."""
    return rebind_step(captured(factory), step, (batch,))


def programs_of(factory: Factory, **how: Unpack[CaptureOptions]) -> tuple[Graph, ...]:
    """The programs of a step: the one of all later calls, and those of its first calls."""
    name = f"programs of {_name(factory, how)}"
    if name not in _MADE:
        _MADE[name] = _kept(name, lambda: tuple(p.graph for p in captured(factory, **how).programs))
    found: tuple[Graph, ...] = _MADE[name]
    return found


def graph_of(factory: Factory) -> Graph:
    """The program of all later calls."""
    return programs_of(factory)[0]


def prepared(factory: Factory, **costs: Unpack[CostOptions]) -> PreparedStep:
    """A step with its costs, ready to be planned."""
    name = f"costs of {_name(factory)} by {sorted(costs.items())}"
    if name not in _MADE:
        _MADE[name] = PreparedStep(captured(factory), **costs)
    found: PreparedStep = _MADE[name]
    return found


def planned(factory: Factory, ask: Ask, **costs: Unpack[CostOptions]) -> StepPlan:
    """A plan of it; `contestants.rebind` puts what it runs on objects of one's own."""
    assert ask.limits.time_s is None, "a plan that is shared is the same on every machine"
    name = f"plan of {_name(factory)} by {sorted(costs.items())} for {ask}"
    if name not in _MADE:
        _MADE[name] = prepared(factory, **costs).plan(ask)
    found: StepPlan = _MADE[name]
    return found


def traced_once(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    **how: Unpack[CaptureOptions],
) -> CapturedStep:
    """Stands in for `capture_step`: a step of the same code, objects and call as one before is not traced again.

    That they are the same is for `rebind_step` to say. A step that has run, or is captured in a way of its own, is traced.
    """
    asked = {name: option for name, option in how.items() if option}
    code = getattr(step, "__code__", None)
    if code is None or kwargs or asked.keys() - {"name", "replans", "checkpoints"}:
        return capture_step(step, args, kwargs, **how)
    known = _TRACED.setdefault((code, str(sorted(asked.items()))), [])
    for one in known:
        try:
            again = rebind_step(one, step, args)
        except PlanMismatch:
            continue
        if not any(optimizer.state for optimizer in again.state.optimizers.values()):
            return again
    found = capture_step(step, args, kwargs, **how)
    if not any(optimizer.state for optimizer in found.state.optimizers.values()):
        known.append(found)
    return found


def damaged() -> list[str]:
    """Steps whose shared objects are not as they were captured."""
    return [name for name, (step, before) in _CAPTURED.items() if _fingerprint(step) != before]


def _name(factory: Factory, how: CaptureOptions | None = None) -> str:
    """What a factory goes by, the same in every process."""
    if how:
        return f"{_name(factory)} with {sorted(how.items())}"
    if isinstance(factory, functools.partial):
        return f"{_name(factory.func)}{factory.args}{sorted(factory.keywords.items())}"
    assert "<" not in factory.__qualname__, "a factory that is made anew has no name of its own"
    return f"{factory.__module__}.{factory.__qualname__}"


def _fingerprint(step: CapturedStep) -> str:
    digest = hashlib.sha256()
    for slot in step.state.tensors:
        found = slot.current()
        digest.update(f"{slot.name} {found.requires_grad} {found.grad is None}".encode())
        if not found.is_meta:
            digest.update(found.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    for name, optimizer in step.state.optimizers.items():
        digest.update(f"{name} {len(optimizer.state)}".encode())
    return digest.hexdigest()


def _kept(name: str, make: Callable[[], Any]) -> Any:
    """What one process of this run has made under a name."""
    if _FOLDER not in os.environ:
        return make()
    file = Path(os.environ[_FOLDER]) / hashlib.sha256(name.encode()).hexdigest()
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_bytes(pickle.dumps(make(), pickle.HIGHEST_PROTOCOL))
    return pickle.loads(file.read_bytes())
