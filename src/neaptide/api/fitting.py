"""Whether a step fits a card, and which change makes it fit. No card is needed, and nothing is run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from neaptide.api.asking import ask_of
from neaptide.budget import Budget
from neaptide.errors import CaptureError, NeaptideError, UsageError
from neaptide.frontends.card.pretended import card_named, pretended
from neaptide.frontends.dims.dynamic_dims import tensors_by_path
from neaptide.frontends.objects.places import replaced
from neaptide.options import PlanOptions, check_names
from neaptide.policy.costed_step import Progress
from neaptide.policy.plan_facts import versions
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.report.allocated import allocated_peak, not_exact, saved_by_small_states
from neaptide.report.fitting_shapes import largest_in_order
from neaptide.report.model import FitChange, FitReport, LargestSize
from neaptide.runtime.steps.capturing import capture
from neaptide.settings import DEFAULTS

Step = Callable[..., Any]
_PLAN_S = 20.0  # of each search
_HOST = "1TiB"  # the report says how much of it is used


class FitOptions(TypedDict, total=False):
    """Of `fits`: the step's further state, a name for the report, seconds for each plan, and what is told what is going on."""

    kwargs: Mapping[str, Any] | None
    state: Any
    name: str
    time_limit_s: float
    progress: Progress | None


def fits(step: Step, *args: Any, device: str, **options: Unpack[FitOptions]) -> FitReport:
    """Say whether a training step fits a card, how large its batch may be, and what makes it fit where it does not.

    Args:
        step: the training step.
        *args: what it is called with. Wherever they and the model are, they are taken to lie on the card.
        device: name of a preset, see `neaptide devices`.
        **options: see `FitOptions`.

    Raises:
        UsageError: no device of that name.
        CaptureError: the step cannot be captured; names the user's line.
    """
    check_names("fits", options, FitOptions.__optional_keys__)
    return _Fit(step, args, device, options).report()


class _Fit:
    def __init__(self, step: Step, args: tuple[Any, ...], device: str, options: FitOptions) -> None:
        self.step, self.args, self.device, self.options = step, args, device, options
        self.kwargs = options.get("kwargs") or {}
        self.notes: list[str] = []
        self.prepared = self._prepared()
        self.peak = allocated_peak(self.prepared)
        usual = self.prepared.as_written()
        # Blocks that are rounded and what cuBLAS keeps: no plan lowers these.
        self.beyond = self.peak.nbytes - usual.peak_with_workspace_bytes
        self.capacity = self.prepared.device.usable_bytes

    def report(self) -> FitReport:
        """All that is found."""
        graph = self.prepared.captured.steady.graph
        margin = self.capacity - self.peak.nbytes
        return FitReport(
            name=graph.name,
            device=self.prepared.device.name,
            capture_seconds=self.prepared.captured.seconds,
            versions=versions(),
            seed=DEFAULTS.seed,
            capacity_bytes=self.capacity,
            predicted_peak_bytes=self.peak.nbytes,
            library_bytes=self.peak.library_bytes,
            fits=margin >= 0,
            margin_bytes=margin,
            captured_on=self.prepared.captured_on,
            predicted_step_seconds=self.prepared.problem().baseline_seconds,
            largest=tuple(self._largest()),
            changes=() if margin >= 0 else tuple(self._changes()),
            notes=tuple(self.notes),
            not_exact=not_exact(graph),
        )

    def _prepared(self) -> PreparedStep:
        name, state = self.options.get("name", ""), self.options.get("state")
        progress = self.options.get("progress")
        return prepare(
            self.step, self.args, self.kwargs, state=state, device=self.device, name=name, progress=progress
        )

    # -- changes

    def _changes(self) -> Iterator[FitChange]:
        graph = self.prepared.captured.steady.graph
        small = saved_by_small_states(graph)
        if small:
            how = "bitsandbytes.optim.AdamW8bit, or another optimizer with states of 8 bits"
            yield self._change("8-bit optimizer states", how, self.peak.nbytes - small)
        if not any(value.dtype == "bfloat16" for value in graph.values):
            how = 'with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss'
            with _in_bf16(self.device):
                yield self._recaptured("bf16 autocast", how)
        blocks = _blocks(self.prepared)
        if blocks and not self.prepared.captured.steady.checkpoints:
            how = f"torch.utils.checkpoint around each of the {len(blocks)} blocks"
            with _checkpointed(blocks):
                yield self._recaptured("checkpointing by hand", how)
        limit = self.capacity - self.beyond
        yield self._planned("a plan", f'neaptide.plan(..., budget="{limit}")', Budget(peak=limit))
        moved = Budget(peak=limit, host=_HOST)
        how = f'neaptide.plan(..., budget=Budget(peak={limit}, host="..."))'
        yield self._planned("a plan with offload", how, moved)

    def _change(
        self, name: str, how: str, nbytes: int, time: float | None = None, note: str = ""
    ) -> FitChange:
        return FitChange(name, how, nbytes, nbytes <= self.capacity, time, note)

    def _recaptured(self, name: str, how: str) -> FitChange:
        try:
            prepared = self._prepared()
        except CaptureError as error:
            return FitChange(name, how, None, None, note=error.what)
        before, after = self.prepared.as_written(), prepared.as_written()
        return self._change(name, how, allocated_peak(prepared).nbytes, after.seconds / before.seconds)

    def _planned(self, name: str, how: str, budget: Budget) -> FitChange:
        limit_s = self.options.get("time_limit_s", _PLAN_S)
        try:
            ask = ask_of("plan", budget, {"device": self.device, "time_limit_s": limit_s}, PlanOptions)
            made = self.prepared.plan(ask).plan.programs[0].predictions
        except NeaptideError as error:
            return FitChange(name, how, None, None, note=error.what)
        nbytes = made.peak_with_workspace_bytes + self.beyond
        note = f"{made.host_bytes} bytes wait on the host" if made.host_bytes else ""
        return self._change(name, how, nbytes, made.seconds / made.baseline_seconds, note)

    # -- the largest batch

    def _largest(self) -> Iterator[LargestSize]:
        """The largest batch and the largest length, one at a time, where all arguments share them."""
        leaves = [leaf for _, leaf in tensors_by_path(self.step, self.args, self.kwargs).values()]
        paths = {path.partition(".")[0] for path in tensors_by_path(self.step, self.args, self.kwargs)}
        for axis, what in ((0, "batch"), (1, "length")):
            sizes = {leaf.shape[axis] if leaf.dim() > axis else None for leaf in leaves}
            is_length = all(not leaf.is_floating_point() for leaf in leaves)
            if len(sizes) != 1 or None in sizes or (axis == 1 and not is_length):
                continue
            dynamic = {path: {axis: (1, None)} for path in paths}
            yield from self._largest_of(dynamic, what)

    def _largest_of(self, dynamic: Any, what: str) -> Iterator[LargestSize]:
        try:
            captured = capture(
                self.step,
                self.args,
                self.kwargs,
                state=self.options.get("state"),
                dynamic=dynamic,
                card=card_named(self.device),
            )
            limit = self.capacity - self.beyond
            found = largest_in_order(captured, self.prepared.device, limit)
            if found is not None:
                yield found
        except (CaptureError, UsageError) as error:
            self.notes.append(f"the largest {what} is not known: {error.what}")


@contextmanager
def _in_bf16(device: str) -> Iterator[None]:
    """While open, all that a step on the card does is under autocast."""
    with pretended(card_named(device)), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        yield


def _blocks(prepared: PreparedStep) -> list[nn.Module]:
    """The modules of the longest list of alike modules that a model is strung from."""
    lists = [
        list(inner)
        for module in prepared.captured.state.modules.values()
        for inner in module.modules()
        if isinstance(inner, nn.ModuleList) and len({type(child) for child in inner}) == 1
    ]
    return max(
        lists, key=lambda blocks: (len(blocks), sum(1 for b in blocks for _ in b.modules())), default=[]
    )


@contextmanager
def _checkpointed(blocks: list[nn.Module]) -> Iterator[None]:
    """While open, each block is checkpointed."""
    if not blocks:
        yield
        return
    first, *others = blocks
    with (
        replaced(
            first, "forward", lambda forward: functools.partial(checkpoint, forward, use_reentrant=False)
        ),
        _checkpointed(others),
    ):
        yield
