"""What can be told to the backend, checked when a graph is compiled."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from neaptide.ask import BITWISE, CLOSE
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.units import parse_duration

ATEN: Final = "aten"
INDUCTOR: Final = "inductor"
BEST: Final = "best"
RAISE: Final = "raise"
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "lowering": (ATEN, INDUCTOR),
    "on_infeasible": (RAISE, BEST),
    "numerics": (BITWISE, CLOSE),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What is wanted of the plans of a compiled model.

    Attributes:
        peak: highest bytes, as in `neaptide.Budget`: `"20GiB"`, `"60%"` of the predicted peak of program order, `"-40%"`, or
            `"min"`. None: the lowest peak by order alone, at no extra time.
        lowering: what the programs are made of: `aten`, the kernels of eager; `inductor`, fused kernels. A share is then of
            the predicted peak of Inductor's own partition, and `None` asks for that.
        on_infeasible: where no plan within the budget is found: `raise` an error, or take the `best`, the plan of `"min"`.
        time_limit: of the search for each graph, in seconds or as text (`"1m"`).
        numerics: `bitwise`: sums are taken in the order of eager; Inductor's kernels are never that. `close`: they may be taken in another order, so that what makes
            most bytes can run in parts.
    """

    peak: str | int | None = None
    lowering: str = ATEN
    on_infeasible: str = RAISE
    time_limit: float | str = 20.0
    numerics: str = BITWISE

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given not in choices:
                raise UsageError(
                    f"{name}={given!r} is no choice of the neaptide backend",
                    next_step=f"choose {_either(choices)}",
                )
        Budget(self.peak)
        if self.seconds <= 0:
            raise UsageError(f"time_limit={self.time_limit!r} leaves no time for a plan")

    @property
    def may_run_in_parts(self) -> bool:
        """Whether regions may run in parts; only programs of ATen have loops."""
        return self.numerics == CLOSE and self.lowering == ATEN and self.peak is not None

    @property
    def seconds(self) -> float:
        """Seconds that the search for one graph may take."""
        return parse_duration(self.time_limit)


def read_options(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
    """The options of a call of `torch.compile`.

    Raises:
        UsageError: an option that there is not, or what it cannot be.
    """
    if mode is not None:
        raise UsageError(
            f"the neaptide backend has no mode {mode!r}", next_step='use options={"peak": "60%"} or the like'
        )
    known = [field.name for field in fields(Options)]
    for name in given or {}:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UsageError(
                f"the neaptide backend has no option {name!r}",
                next_step=f"{hint}there are {', '.join(known)}",
            )
    return Options(**(given or {}))


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(map(repr, choices))
