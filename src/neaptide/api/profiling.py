"""What a step uses, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import Dynamic
from neaptide.report.fitting_shapes import fitting_shapes
from neaptide.report.model import ProfileReport
from neaptide.report.profiling import profile_report
from neaptide.report.shape_ranges import shape_curves, shape_ranges
from neaptide.runtime.capturing import capture
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.prepared_step import prepare
from neaptide.settings import DEFAULTS, check_setting
from neaptide.units import parse_size

Step = Callable[..., Any]


def profile(
    step: Step,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
    device: str | None = None,
    name: str = "",
    seed: int = DEFAULTS.seed,
    audit: bool = True,
    refresh: bool = False,
    progress: Progress | None = None,
    dynamic: Dynamic | None = None,
    fit: str | int | None = None,
    curves: bool = False,
) -> ProfileReport:
    """Predict the peak of a training step without running it.

    Args:
        step: the training step.
        *args: what it is called with: tensors whose shapes, dtypes and devices are as in training.
        kwargs: further arguments of it, by name.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        device: name of a preset (see `neaptide devices`): says whether the step fits there. Nothing of model size is
            allocated. None means this machine.
        name: for the report.
        seed: recorded.
        audit: run distinct operations alone, one at a time, to learn their workspace and time; with a preset, or
            for a model without bytes (`device="meta"`), they are estimated instead.
        refresh: run those again that were run before. Results are kept in a cache for this and later calls; they are
            worth renewing when the machine was busy with other things at the time.
        progress: told what is going on.
        dynamic: dims that may vary, as for `compile_step`: the report then tells for which sizes one program holds, and
            its peak at the ends of the ranges.
        fit: bytes, such as `"24GiB"`: the report then tells the largest shapes in the ranges of one or two dims that
            stay within them, in program order and with a program for all shapes. A range may be without end.
        curves: tell peaks along the ranges of `dynamic` as well, for a picture (`report.range_picture`).

    Raises:
        UsageError: no device of that name, a seed that none can be, `dynamic` does not fit the arguments, or `fit` is no
            size or is given without `dynamic`.
        CaptureError: the step cannot be captured; names the user's line.
    """
    check_setting("seed", seed)
    limit_bytes = None if fit is None else parse_size(fit)
    if limit_bytes is not None and not dynamic:
        raise UsageError(
            "fit needs dims that vary",
            next_step='name them: dynamic={"batch": {0: (2, 64)}}, or --dynamic batch:0=2..64',
        )
    prepared = prepare(
        step,
        args,
        kwargs,
        state=state,
        device=device,
        run_operations=audit,
        name=name,
        progress=progress,
        refresh=refresh,
    )
    report = profile_report(prepared, has_device=device is not None, seed=seed)
    if not dynamic:
        return report
    captured = capture(step, args, kwargs, state=state, name=name, dynamic=dynamic)
    ranges = shape_ranges(captured, prepared.device)
    if curves:
        ranges = replace(ranges, curves=shape_curves(captured, prepared.device))
    if limit_bytes is not None:
        fitting = fitting_shapes(captured, prepared.device, limit_bytes, with_curves=curves)
        ranges = replace(ranges, fit=fitting)
    return replace(report, ranges=ranges)
