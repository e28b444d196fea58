"""One model of the zoo on a card: peaks, bits and times of eager, of plans and of what others do. The last line is JSON.

Steps of two programs share nothing but the seed. Device times are between events around whole steps, in rounds, beside eager.
Whole processes may run side by side: what is timed, a call of the step or an operation alone, has the card to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import neaptide
from bench_record import say
from checkpoint_peers import by_block
from neaptide import zoo
from neaptide.cost.cards.cublas import library_blocks
from neaptide.cost.measured import MeasuredCost
from neaptide.errors import LayoutProblemError, NeaptideError
from neaptide.policy.card_bytes import allocator_peaks

# ruff: noqa: E402  (what is imported last is in the folder above)

_WARM: Final = 3
_STEPS: Final = 6
_LOCK: Final = Path(tempfile.gettempdir()) / "neaptide-gpu-benchmark.lock"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The card, for this process alone."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made(spec: str) -> tuple[Callable[[Any], Any], Any]:
    """A fresh step and its batch, on the card."""
    step, batch = zoo.factory(spec, device="cuda")()
    return step, batch


def checkpointed(spec: str) -> tuple[Callable[[Any], Any], Any]:
    step, batch = made(spec)
    by_block(step)
    return step, batch


def on_host(spec: str) -> tuple[Callable[[Any], Any], Any]:
    """All that autograd saves waits in pinned memory, as `save_on_cpu` does it."""
    step, batch = made(spec)

    def run(given: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return step(given)

    return run, batch


def compiled(spec: str, budget: float = 1.0) -> tuple[Callable[[Any], Any], Any]:
    """The model under Inductor; its backward is compiled as well, its optimizer is not."""
    from neaptide.frontends.state.state_finder import find_state

    torch._functorch.config.activation_memory_budget = budget  # noqa: SLF001 - where PyTorch keeps it
    step, batch = made(spec)
    for module in find_state(step).modules.values():
        module.compile()
    return step, batch


def planned(spec: str, **options: Any) -> tuple[Any, Any]:
    step, batch = made(spec)
    return neaptide.compile_step(step, **{"time_limit_s": 15.0, **options}), batch


class Seen(NamedTuple):
    """Losses and peaks of a few steps."""

    losses: list[float]
    peaks: dict[str, int]


def worst(one: Seen, other: Seen) -> float:
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


class Run:
    """A program that has run for a few steps."""

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        self.run, self.batch = make()
        losses = [float(self.run(self.batch))]  # a plan is made now
        with alone():
            losses += [float(self.run(self.batch)) for _ in range(_WARM - 1)]
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            losses += [float(self.run(self.batch)) for _ in range(_STEPS)]
            torch.cuda.synchronize()
        found = torch.cuda.memory_stats()
        peaks = {
            "measured_allocated_bytes": found["allocated_bytes.all.peak"],
            "measured_requested_bytes": found["requested_bytes.all.peak"],
            "measured_reserved_bytes": found["reserved_bytes.all.peak"],
        }
        self.seen = Seen(losses, peaks)

    def timed(self) -> tuple[float, float]:
        """Seconds of a step by events, and of the host until it is free again."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        before = time.perf_counter()
        self.run(self.batch)
        host_s = time.perf_counter() - before
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3, host_s


def beside(programs: dict[str, Run], rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of programs in turns, and of each round's ratio to the first."""
    names, times = list(programs), {name: [] for name in programs}
    with alone():
        for index in range(rounds + 1):
            for name in names[index % len(names) :] + names[: index % len(names)]:
                found = programs[name].timed()
                if index:
                    times[name].append(found)
    first = times[names[0]]
    return {
        name: {
            "measured_seconds": statistics.median(s for s, _ in found),
            "measured_host_seconds": statistics.median(h for _, h in found),
            "measured_ratio": statistics.median(s / f for (s, _), (f, _) in zip(found, first, strict=True)),
        }
        for name, found in times.items()
    }


def told_by_plan(run: Any, said: list[str]) -> dict[str, Any]:
    """What a plan predicts, and what its step says of itself."""
    plan, counts = run.plan, run.counts
    told = plan.programs[0].predictions
    return blocks_of(run) | {
        "predicted_peak_bytes": told.peak_with_workspace_bytes + plan.budget.outside_bytes,
        "predicted_library_bytes": plan.budget.outside_bytes,
        "predicted_eager_peak_bytes": told.baseline_peak_with_workspace_bytes + plan.budget.outside_bytes,
        "budget_bytes": plan.programs[0].budget_bytes + plan.budget.outside_bytes,
        "predicted_ratio": told.seconds / told.baseline_seconds,
        "predicted_seconds": told.seconds,
        "calls": [counts.planned, counts.eager],
        "verified": counts.verified.describe(),
        "operations": [len(plan.programs[0].sequence), plan.programs[0].node_count],
        "said": said,
    }


def blocks_of(run: Any) -> dict[str, int]:
    """What the simulated allocator makes of a plan; nothing for one that moves storages."""
    runs, program = run._variants[-1].planned.graphs[0], run.plan.programs[0]  # noqa: SLF001 - no report has it
    kept = library_blocks(torch.cuda.get_device_capability()[0]) if run.plan.budget.outside_bytes else ()
    try:
        found = allocator_peaks(runs.graph, runs.schedule, program.assumed, kept)
    except LayoutProblemError:
        return {}
    return {
        "predicted_allocated_bytes": found.allocated,
        "predicted_reserved_bytes": found.reserved,
        "predicted_requested_bytes": found.requested,
    }


def asked(text: str) -> dict[str, Any]:
    """Options of a plan from `BUDGET[,KEY=VALUE...]`."""
    peak, *rest = text.split(",")
    options: dict[str, Any] = {"budget": peak}
    for one in rest:
        key, _, value = one.partition("=")
        if key == "host":
            options["budget"] = neaptide.Budget(peak, host=value)
        else:
            options[key] = float(value) if key == "time_limit_s" else value
    return options


def rows_of(spec: str, variants: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each program, eager first."""
    first, again = (Run(lambda: made(spec)).seen for _ in range(2))
    yield {
        "program": "eager",
        **first.peaks,
        "eager_gives_same_bits_again": first.losses == again.losses,
        "worst_loss_difference": worst(first, again),
        "losses": first.losses,
    }
    for variant in variants:
        kind, _, rest = variant.partition(":")
        makers: dict[str, Callable[[], tuple[Any, Any]]] = {
            "plan": lambda rest=rest: planned(spec, **asked(rest)),
            "checkpoint": lambda: checkpointed(spec),
            "save_on_cpu": lambda: on_host(spec),
            "inductor": lambda rest=rest: compiled(spec, float(rest or 1)),
        }
        began = time.perf_counter()
        row: dict[str, Any] = {"program": variant}
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = Run(makers[kind])
            row |= found.seen.peaks
            row |= {
                "made_in_seconds": time.perf_counter() - began,
                "peak_of_eager": found.seen.peaks["measured_allocated_bytes"]
                / first.peaks["measured_allocated_bytes"],
                "same_bits": found.seen.losses == first.losses,
                "worst_loss_difference": worst(found.seen, first),
            }
            if kind == "plan":
                row |= told_by_plan(found.run, [str(one.message)[:300] for one in said])
            if rounds:
                # No other program is alive while peaks are measured.
                times = beside({"eager": Run(lambda: made(spec)), variant: found}, rounds)
                row |= times[variant] | {"eager_seconds": times["eager"]["measured_seconds"]}
                row["eager_host_seconds"] = times["eager"]["measured_host_seconds"]
            del found
        except (NeaptideError, RuntimeError, AttributeError) as error:
            row |= {"failure": f"{type(error).__name__}: {error}"[:600]}
        say(json.dumps({"spec": spec, **row}))  # kept where the process is ended
        yield row
        if kind == "inductor":
            torch._dynamo.reset()  # noqa: SLF001 - else the next model runs this one's code


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("spec")
    arguments.add_argument("variants", nargs="*")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument(
        "--deterministic", action="store_true", help="no kernel that gives other bits each run"
    )
    given = arguments.parse_args()
    if given.deterministic:
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    operations = MeasuredCost.prepare

    def prepare(self: MeasuredCost, graph: Any) -> int:
        with alone():
            return operations(self, graph)

    MeasuredCost.prepare = prepare  # type: ignore[method-assign]
    rows = list(rows_of(given.spec, given.variants, given.rounds))
    sys.stdout.write(json.dumps({"spec": given.spec, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
