"""Budget: how much memory a plan may use, and how much longer it may take. Checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import InvalidBudget, UsageError
from neaptide.units import format_bytes, parse_duration, parse_increase, parse_share, parse_size

_ACCEPTED = 'a size ("20GiB", 500000000), a share of the baseline ("60%"), a reduction ("-30%") or "min"'
_MIN: Final = "min"
_LEAST_PLAIN: Final = 1000
"""Bytes below which a number without a unit is a slip: two scalars and their addresses take as many."""
_WHOLE: Final = 100  # per cent


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on a plan.

    Attributes:
        peak: highest bytes with workspace: a size such as `"20GiB"`, a number of bytes, a share of the predicted
            baseline such as `"60%"`, or a reduction such as `"-30%"`. `"min"`: the lowest peak that is found,
            recomputation allowed. None: no higher than the baseline.
        latency: longest time of a step: seconds, a duration such as `"250ms"`, or `"+10%"` over the baseline.
            Without either, the plan has the lowest peak that was found by order alone, at no extra time.
        outside_bytes: what lives on the device outside the planned graph; it counts into the peak.
        host: most bytes that storages may take on the host while they wait there: a size such as `"8GiB"`, or a number
            of bytes. None: nothing is moved.
        state_between_steps: parameters and optimizer states may stay there between two steps as well, so that a step
            may use fewer bytes than all of them take. Steps then run inside `with step.state_on_host():`.

    Raises:
        InvalidBudget: for anything else, naming what was given and what is accepted.

    >>> Budget("60%").resolve(1000)
    600
    """

    peak: str | int | None = None
    latency: str | float | None = None
    outside_bytes: int = 0
    host: str | int | None = None
    state_between_steps: bool = False

    def __post_init__(self) -> None:
        if (
            isinstance(self.outside_bytes, bool)
            or not isinstance(self.outside_bytes, int)
            or self.outside_bytes < 0
        ):
            raise InvalidBudget(
                f"outside_bytes={self.outside_bytes!r} is not a number of bytes",
                next_step="give a whole number of at least zero",
            )
        self._peak_factor()
        if not self.is_share and not self.is_min:
            self._peak_bytes()
        self.resolve_latency(1.0)
        if not self.host_bytes and self.state_between_steps:
            raise InvalidBudget(
                "state is to stay on the host between two steps, and there is no room on the host",
                next_step='say how many bytes there are: Budget(host="64GiB", state_between_steps=True)',
            )

    def resolve(self, baseline_peak_bytes: int) -> int:
        """Bytes that the planned graph may use at its peak, given the predicted peak of its baseline.

        A share is of the baseline together with `outside_bytes`. Never above the baseline.

        Raises:
            InvalidBudget: when `outside_bytes` alone are more than the budget.
        """
        return min(self.limit(baseline_peak_bytes), baseline_peak_bytes)

    def limit(self, baseline_peak_bytes: int) -> int:
        """The same, and above the baseline where the budget is a size that is.

        Raises:
            InvalidBudget: when `outside_bytes` alone are more than the budget.
        """
        total = baseline_peak_bytes + self.outside_bytes
        if self.peak is None or self.is_min:
            return baseline_peak_bytes
        allowed = math.floor(self._peak_factor() * total) if self.is_share else self._peak_bytes()
        if allowed < self.outside_bytes:
            raise InvalidBudget(
                f"the budget {self.peak!r} is {format_bytes(allowed)}, less than what lives outside the graph",
                why=f"outside_bytes are {format_bytes(self.outside_bytes)}",
                next_step="raise the budget, or free what lives outside",
            )
        return allowed - self.outside_bytes

    def tighter(self, nbytes: int) -> Budget:
        """The same with so many bytes less for the planned graph, as if they lived outside of it.

        The same where it is a share of all or more: that is the baseline, whatever lives outside.

        >>> Budget("80%").tighter(10).resolve(1000)
        790
        """
        left = 1 - self._peak_factor() if self.is_share else 1.0
        if left <= 0:
            return self
        return replace(self, outside_bytes=self.outside_bytes + math.ceil(nbytes / left))

    def resolve_latency(self, baseline_seconds: float) -> float | None:
        """Seconds that a step may take; None without a limit."""
        if self.latency is None:
            return None
        try:
            if isinstance(self.latency, str) and self.latency.strip().endswith("%"):
                return parse_increase(self.latency) * baseline_seconds
            return parse_duration(self.latency)
        except UsageError as error:
            raise InvalidBudget(
                f"latency={self.latency!r} is no limit on time",
                why=error.why or error.what,
                next_step='give seconds, a duration ("250ms") or an increase over the baseline ("+10%")',
            ) from error

    def in_seconds(self, baseline_seconds: float) -> Budget:
        """The same with its limit of time in seconds."""
        seconds = self.resolve_latency(baseline_seconds)
        return self if seconds is None else replace(self, latency=seconds)

    @property
    def seconds(self) -> float | None:
        """The limit of time where it is one in seconds; None for a share of the baseline's, and without a limit."""
        is_share = isinstance(self.latency, str) and self.latency.strip().endswith("%")
        return None if is_share else self.resolve_latency(1.0)

    @property
    def host_bytes(self) -> int:
        """Most bytes that storages may take on the host; 0 where nothing is moved."""
        if self.host is None:
            return 0
        try:
            return parse_size(self.host)
        except UsageError as error:
            raise InvalidBudget(
                f"host={self.host!r} is no size",
                why=error.why or error.what,
                next_step='give a size ("8GiB", 500000000), or None: nothing is moved',
            ) from error

    @property
    def is_none(self) -> bool:
        """Whether it limits nothing."""
        return self.peak is None and self.latency is None

    @property
    def is_min(self) -> bool:
        """Whether the lowest peak that is found is asked for."""
        return isinstance(self.peak, str) and self.peak.strip().lower() == _MIN

    @property
    def is_share(self) -> bool:
        """Whether the bytes depend on the baseline."""
        return isinstance(self.peak, str) and self.peak.strip().endswith("%")

    def _peak_factor(self) -> float:
        if not self.is_share:
            return 1.0
        try:
            return parse_share(str(self.peak))
        except UsageError as error:
            raise self._invalid(error) from error

    def _peak_bytes(self) -> int:
        if self.peak is None:
            return 0
        try:
            size = parse_size(self.peak)
        except UsageError as error:
            raise self._invalid(error) from error
        if size == 0:
            raise InvalidBudget(f"peak={self.peak!r} leaves nothing", next_step=f"give {_ACCEPTED}")
        return size

    def _invalid(self, error: UsageError) -> InvalidBudget:
        return InvalidBudget(
            f"peak={self.peak!r} is no budget", why=error.why or error.what, next_step=f"give {_ACCEPTED}"
        )


def check_unit(peak: str | int | None) -> None:
    """Refuse a peak of a step that is a small number: its unit was forgotten.

    Raises:
        InvalidBudget: asking what was meant.
    """
    try:
        number = 0.0 if peak is None else float(peak)
    except ValueError:  # with a unit
        return
    if 0 < number < _LEAST_PLAIN:
        share = f"{peak}% or " if number < _WHOLE else ""
        raise InvalidBudget(
            f"a peak of {peak} is {peak} bytes, and no step fits into them",
            next_step=f"did you mean {share}{peak}GiB? write {peak}B if it is bytes",
        )


def allowed_bytes(budget: Budget, peak_bytes: int, first: int | None, least_bytes: int = 0) -> int:
    """Bytes that one of the programs of a step may use; never more than its peak as it was written, with workspace.

    `first` is what the usual program may use, since a share is of its peak alone; None for that program itself. `least_bytes`
    are allowed in any case.

    Raises:
        InvalidBudget: when `outside_bytes` alone are more than the budget.
    """
    asked = first if first is not None and budget.is_share else budget.limit(peak_bytes)
    return min(max(asked, least_bytes), peak_bytes)
