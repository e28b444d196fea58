"""neaptide lowers the high-water mark of deep-learning programs.

    plan = neaptide.plan(step, batch, budget="60%")
    fast = plan.apply(step)
    loss = fast(batch)

Importing the package imports no framework; names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from neaptide.version import VERSION

if TYPE_CHECKING:
    from neaptide.api import apply as apply
    from neaptide.api import compare as compare
    from neaptide.api import compare_shapes as compare_shapes
    from neaptide.api import compile_step as compile_step
    from neaptide.api import explain as explain
    from neaptide.api import fits as fits
    from neaptide.api import plan as plan
    from neaptide.api import plan_by_trials as plan_by_trials
    from neaptide.api import profile as profile
    from neaptide.api import run as run
    from neaptide.budget import Budget as Budget
    from neaptide.copy_engines.copy_engine import SlowMemory as SlowMemory
    from neaptide.ops.declared import declare_pure as declare_pure
    from neaptide.plans import Plan as Plan
    from neaptide.runtime.arena.plan import ArenaOptions as ArenaOptions

__version__: Final = VERSION

_HOME: Final = {
    "apply": "neaptide.api",
    "compare": "neaptide.api",
    "compare_shapes": "neaptide.api",
    "compile_step": "neaptide.api",
    "declare_pure": "neaptide.ops.declared",
    "explain": "neaptide.api",
    "fits": "neaptide.api",
    "plan": "neaptide.api",
    "plan_by_trials": "neaptide.api",
    "profile": "neaptide.api",
    "run": "neaptide.api",
    "ArenaOptions": "neaptide.runtime.arena.plan",
    "Budget": "neaptide.budget",
    "Plan": "neaptide.plans",
    "SlowMemory": "neaptide.copy_engines.copy_engine",
}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604 - names of a literal mapping


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "onnx":
        return importlib.import_module("neaptide.onnx")
    raise AttributeError(f"module 'neaptide' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
