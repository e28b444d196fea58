"""What a step uses, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from neaptide.errors import UsageError
from neaptide.frontends.card.pretended import card_named
from neaptide.options import ProfileOptions, check_names
from neaptide.policy.prepared_step import prepare
from neaptide.report.fitting_shapes import fitting_shapes, shape_ranges
from neaptide.report.model import ProfileReport
from neaptide.report.profiling import profile_report
from neaptide.runtime.steps.capturing import capture
from neaptide.settings import DEFAULTS, check_setting
from neaptide.units import parse_size

Step = Callable[..., Any]


def profile(
    step: Step,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
    name: str = "",
    **options: Unpack[ProfileOptions],
) -> ProfileReport:
    """Predict the peak of a training step without running it.

    Args:
        step: the training step.
        *args: what it is called with: tensors whose shapes, dtypes and devices are as in training.
        kwargs: further arguments of it, by name.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        name: for the report.
        **options: see `neaptide.options.ProfileOptions`.

    Raises:
        UsageError: no device of that name, a seed that none can be, `dynamic` does not fit the arguments, or `fit` is no
            size or is given without `dynamic`.
        CaptureError: the step cannot be captured; names the user's line.
    """
    check_names("profile", options, ProfileOptions.__optional_keys__)
    seed, device = options.get("seed", DEFAULTS.seed), options.get("device")
    dynamic, fit, curves = options.get("dynamic"), options.get("fit"), options.get("curves", False)
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
        run_operations=options.get("audit", True),
        name=name,
        progress=options.get("progress"),
        refresh=options.get("refresh", False),
    )
    report = profile_report(prepared, has_device=device is not None, seed=seed)
    if not dynamic:
        return report
    card = card_named(device)
    captured = capture(step, args, kwargs, state=state, name=name, dynamic=dynamic, card=card)
    ranges = shape_ranges(captured, prepared.device, with_curves=curves)
    if limit_bytes is not None:
        fitting = fitting_shapes(captured, prepared.device, limit_bytes, with_curves=curves)
        ranges = replace(ranges, fit=fitting)
    return replace(report, ranges=ranges)
