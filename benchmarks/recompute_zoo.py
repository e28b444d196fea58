"""Recomputation really run: `python benchmarks/recompute_zoo.py [MODEL ...] [--size small] [--keep]`.

For each model of the zoo, the whole step with its optimizer: plans for 75, 50, 25 and 10 % of the way from the lowest
peak found up to eager's, and beside them `torch.utils.checkpoint` by block, by about sqrt(n) segments, and selectively
(`checkpoint_peers.py` says what the blocks are), each with a plan of ours for the very peak that it measured. Peaks
are counted by the allocator's events, numbers are compared with eager bit by bit over three steps, and processor times
are taken in turns in one process, the ratio within each round; printed are the median of the rounds and its bootstrap
interval (95 %). A peer's losses are compared with eager's; what it does to a batch norm's statistics is its own affair.

Searches are limited by work, so that plans do not depend on how busy the machine is; `--refresh` times the operations
again that an earlier run timed. Each model is kept in `parts` beside the result as soon as it is measured, and `--keep`
takes it from there. All models take about 45 minutes of one quiet core, two to five each. `recompute_zoo.json` is
written when all of them ran.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench_record import MIB, RESULTS, recorded, save, table
from model_rows import measured_rows
from neaptide import zoo

if TYPE_CHECKING:
    from neaptide.runtime.steps.planned_graph import StepPlan

SEED = 0
ROUNDS = 7
SHARES = (75, 50, 25, 10)
STEPS = 3
WORK = 16_000
PART_S = 3600.0
COLUMNS = (
    "model",
    "program",
    "budget (MiB)",
    "peak (MiB)",
    "held",
    "same bits",
    "predicted ratio",
    "CPU ratio",
    "95 % interval",
    "note",
)


class Field:
    """The programs of one model, made and measured in this process, and how long each part of that took."""

    def __init__(self, spec: str, work: int) -> None:
        from neaptide.outcome import Limits
        from neaptide.policy.prepared_step import prepare
        from neaptide.runtime.comparing import contestants
        from neaptide.runtime.comparing.verification import verify_eager
        from neaptide.runtime.measuring.meter import StepMeasurement

        self.factory = zoo.factory(spec)
        self.limits = Limits(work=work, seed=SEED)
        self.spent: dict[str, float] = {}
        self.rows: list[dict[str, Any]] = []
        self.memory: dict[str, StepMeasurement] = {}
        self.runners: dict[str, Callable[[], Any]] = {}
        self.persistents: dict[str, Callable[[], Any]] = {}
        self._same: dict[tuple[Any, ...], str] = {}
        with self.spend("capturing and timing operations"):
            step, batch = contestants.build(self.factory, SEED)
            self.prepared = prepare(step, (batch,), name=spec)
            self.prepared.problem()
        del step, batch
        with self.spend("running and verifying"):
            self.expected = verify_eager(self.factory, SEED)

    @contextmanager
    def spend(self, what: str) -> Iterator[None]:
        """Processor seconds of this process, by what they go to."""
        before = time.process_time()
        yield
        self.spent[what] = self.spent.get(what, 0.0) + time.process_time() - before

    def planned(self, budget_bytes: int) -> StepPlan:
        """A plan of the whole step."""
        from neaptide.ask import Ask
        from neaptide.budget import Budget

        with self.spend("planning"):
            return self.prepared.plan(Ask(Budget(budget_bytes), limits=self.limits))

    def run(self, name: str, run: Callable[[], Any], persistent: Callable[[], Any], **row: Any) -> None:
        """Measure the memory of a program that has run before, and keep it for the timing."""
        from neaptide.runtime.comparing import contestants

        self.memory[name] = contestants.measure_step(run, persistent)
        self.runners[name] = run
        self.persistents[name] = persistent
        self.rows.append({"program": name} | row)

    def add_plan(self, name: str, budget_bytes: int) -> None:
        """Plan, verify and measure; a plan that an earlier row has already is not run twice."""
        from neaptide.runtime.comparing import contestants
        from neaptide.runtime.comparing.verification import verify_planned

        found = self.planned(budget_bytes)
        steady = found.plan.programs[0]
        row = {
            "budget_bytes": budget_bytes,
            "predicted_peak_bytes": steady.predictions.peak_with_workspace_bytes,
            "predicted_ratio": steady.predictions.seconds / steady.predictions.baseline_seconds,
            "bound_ratio": (steady.termination.bound or 0.0) / steady.predictions.baseline_seconds,
            "recomputations": len(steady.moves.recomputations),
            "strategy": steady.strategy,
        }
        known = self._same.setdefault(tuple(p.sequence for p in found.plan.programs), name)
        if known != name:
            self.rows.append({"program": name, "same_as": known} | row)
            return
        with self.spend("running and verifying"):
            made = contestants.planned_contestant(name, self.factory, SEED, contestants.rebind(found.variant))
            made.run()
            verify = contestants.rebind(found.variant)
            outcome, _ = verify_planned(self.factory, SEED, verify, self.expected)
            self.run(name, made.run, made.persistent, bitwise_equal=outcome.bitwise_equal, **row)

    def add_peer(self, name: str, found: Peer) -> None:
        """A peer, and a plan of ours for the peak that it has; none where it does not compute what eager does."""
        row = {"budget_bytes": None, "note": found.note, "bitwise_equal": found.same_losses}
        if found.run is None or found.persistent is None:
            self.rows.append({"program": name} | row)
            return
        with self.spend("running and verifying"):
            self.run(name, found.run, found.persistent, **row)
        if found.same_losses:
            self.add_plan(f"plan as {name}", self.memory[name].measured_allocator_peak_bytes)

    def time(self, rounds: int) -> None:
        """Time all programs in turns and complete the rows."""
        from neaptide.runtime.measuring.timing import interleaved, median_ratio

        gc.collect()
        with self.spend("timing"):
            times = interleaved(self.runners, rounds, warmup=0)  # each has run three steps by now
        bits = {row["program"]: row.get("bitwise_equal") for row in self.rows}
        for row in self.rows:
            name = row.get("same_as", row["program"])
            if name not in self.memory:
                continue
            ratio = median_ratio(times[name].cpu_s, times["eager"].cpu_s, seed=SEED)
            peak = self.memory[name].measured_allocator_peak_bytes
            row |= {
                "bitwise_equal": bits[name],
                "measured_allocator_peak_bytes": peak,
                "measured_peak_bytes": self.memory[name].measured_peak_bytes,
                "cpu_seconds": statistics.median(times[name].cpu_s),
                "cpu_ratio": ratio.ratio,
                "cpu_ratio_low": ratio.low,
                "cpu_ratio_high": ratio.high,
                "is_held": None if row["budget_bytes"] is None else peak <= row["budget_bytes"],
            }
        for row in self.rows:
            twin = next((r for r in self.rows if r["program"] == f"plan as {row['program']}"), None)
            if twin is not None:
                ours = times[twin.get("same_as", twin["program"])].cpu_s
                against = median_ratio(ours, times[row["program"]].cpu_s, seed=SEED)
                row["plan_against_peer"] = [against.ratio, against.low, against.high]


def measure(spec: str, rounds: int, work: int) -> dict[str, Any]:
    """One model: all its programs, measured in this process."""
    import torch

    from neaptide.runtime.comparing import contestants

    torch.set_num_threads(1)
    field = Field(spec, work)
    floor = field.prepared.problem().lower_bound_bytes
    least = field.planned(floor).plan.programs[0]
    lowest = least.predictions.peak_with_workspace_bytes
    eager = contestants.eager_contestant(field.factory, SEED)
    eager.run()
    field.run("eager", eager.run, eager.persistent, budget_bytes=None, bitwise_equal=True)
    highest = field.memory["eager"].measured_allocator_peak_bytes
    for share in SHARES:
        field.add_plan(f"plan {share} %", lowest + (highest - lowest) * share // 100)
    for name, found in peers(field.factory).items():
        field.add_peer(name, found)
    field.time(rounds)
    return {
        "spec": spec,
        "lower_bound_bytes": floor,
        "lowest_peak_bytes": lowest,
        "eager_peak_bytes": highest,
        "cpu_seconds": {what: round(seconds, 1) for what, seconds in field.spent.items()},
        "programs": field.rows,
    }


class Peer:
    """A checkpointed model ready to run, or why there is none.

    Attributes:
        run: one step; None where it cannot be run.
        persistent: tensors that live before a step.
        same_losses: its losses are eager's, to the bit.
        note: number of blocks or segments, or what went wrong.
    """

    def __init__(self, factory: Callable[[], Any], wrap: Callable[[Any], int], expected: list[float]) -> None:
        from neaptide.frontends.state.state_finder import find_state
        from neaptide.runtime.calls.binding import state_tensors
        from neaptide.runtime.comparing import contestants

        self.run: Callable[[], Any] | None = None
        self.persistent: Callable[[], Any] | None = None
        self.same_losses = False
        self.note = ""
        step, batch = contestants.build(factory, SEED)
        count = wrap(step)
        if not count:
            self.note = "no blocks"
            return
        self.note = f"{count} parts"
        try:
            losses = [float(step(batch)) for _ in range(STEPS)]
        except Exception as error:  # noqa: BLE001 - whatever a model that is taken apart does
            self.note = f"cannot be run so: {(str(error).splitlines() or [type(error).__name__])[0][:80]}"
            return
        self.same_losses = losses == expected
        if not self.same_losses:
            self.note += "; other losses than eager"
        state = find_state(step)
        self.persistent = lambda: [*state_tensors(state), *batch.values()]
        self.run = lambda: step(batch)


def peers(factory: Callable[[], Any]) -> dict[str, Peer]:
    """The peers of a model by name."""
    from checkpoint_peers import PEERS
    from neaptide.runtime.comparing import contestants

    step, batch = contestants.build(factory, SEED)
    expected = [float(step(batch)) for _ in range(STEPS)]
    return {name: Peer(factory, wrap, expected) for name, wrap in PEERS.items()}


def collect(models: list[str], folder: Path, *, keep: bool, **asked: Any) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`. Each is kept in a folder as soon as it is there."""
    options = [f"--rounds={asked['rounds']}", f"--work={asked['work']}"]
    rows = measured_rows(
        "recompute_zoo.py",
        models,
        folder,
        size=asked["size"],
        options=options,
        keep=keep,
        timeout_s=PART_S,
    )
    settings = {name: value for name, value in asked.items() if name != "rounds"}
    return recorded(rows, seed=SEED, repeats=asked["rounds"], **settings)


def text(result: dict[str, Any]) -> str:
    """The table, what each model took, and what failed."""
    lines, others = [], []
    for model in result["rows"]:
        if "failure" in model:
            others.append(f"{model['spec']} failed: {model['failure']}")
            continue
        parts = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in model["cpu_seconds"].items())
        others.append(f"{model['spec']} took {model['seconds']:.0f} s; of a processor: {parts}")
        for row in model["programs"]:
            is_run = "cpu_ratio" in row
            note = row.get("note", "")
            if "same_as" in row:
                note = f"the program of {row['same_as']!r}"
            if "plan_against_peer" in row:
                note += "; ours takes {:.3f} ({:.3f} to {:.3f}) of its time".format(*row["plan_against_peer"])
            lines.append(
                [
                    model["spec"],
                    row["program"],
                    "-" if row["budget_bytes"] is None else f"{row['budget_bytes'] / MIB:.2f}",
                    f"{row['measured_allocator_peak_bytes'] / MIB:.2f}" if is_run else "-",
                    {True: "yes", False: "NO", None: "-"}[row.get("is_held")],
                    "yes" if row["bitwise_equal"] else "no",
                    f"{row['predicted_ratio']:.3f}" if "predicted_ratio" in row else "-",
                    f"{row['cpu_ratio']:.3f}" if is_run else "-",
                    f"{row['cpu_ratio_low']:.3f} to {row['cpu_ratio_high']:.3f}" if is_run else "-",
                    note,
                ]
            )
    return "\n".join([table(COLUMNS, lines), *others])


def bars(models: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """What is held, what was found, and whether every model that was run holds it."""
    failed = [f"{model['spec']} failed" for model in models if "failure" in model]
    rows = [(model["spec"], row) for model in models if "failure" not in model for row in model["programs"]]
    plans = [(spec, row) for spec, row in rows if row["program"].startswith("plan")]
    above = [f"{spec} {row['program']}" for spec, row in plans if not row["is_held"]]
    other = [f"{spec} {row['program']}" for spec, row in plans if not row["bitwise_equal"]]
    pairs = [(f"{spec} {row['program']}", row["plan_against_peer"]) for spec, row in rows if is_paired(row)]
    slower = [f"{name} ({ratio[0]:.3f})" for name, ratio in pairs if ratio[0] >= 1.0]
    clear = sum(ratio[2] < 1.0 for _, ratio in pairs)
    found = [
        ("measured peak within the budget", f"{len(plans) - len(above)} of {len(plans)}", above),
        ("bitwise equal to eager", f"{len(plans) - len(other)} of {len(plans)}", other),
        (
            "faster than checkpointing at its peak",
            f"{len(pairs) - len(slower)} of {len(pairs)}, {clear} of them beyond doubt",
            slower,
        ),
    ]
    return [
        (name, counted + (f"; not: {', '.join(missed)}" if missed else ""), not missed and not failed)
        for name, counted, missed in found
    ]


def is_paired(row: dict[str, Any]) -> bool:
    """Whether a peer was run beside a plan of ours for its peak."""
    return "plan_against_peer" in row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names of zoo models; by default all")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed steps of each program, in turns")
    parser.add_argument("--work", type=int, default=WORK, help="changes that each search may try")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--keep", action="store_true", help="take models that an earlier run has measured")
    parser.add_argument("--refresh", action="store_true", help="time every operation again, in a fresh cache")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.rounds, asked.work)))
        return 0
    with ExitStack() as stack:
        if asked.refresh:
            os.environ["NEAPTIDE_CACHE_DIR"] = stack.enter_context(TemporaryDirectory())
        result = collect(
            asked.models or list(zoo.names()),
            asked.output / "parts",
            keep=asked.keep,
            size=asked.size,
            rounds=asked.rounds,
            work=asked.work,
        )
    print(text(result))
    found = bars(result["rows"])
    print(table(("bar", "found", "met"), [[name, what, "yes" if met else "NO"] for name, what, met in found]))
    if {row["spec"].partition("@")[0] for row in result["rows"] if "failure" not in row} == set(zoo.names()):
        save("recompute_zoo", result, asked.output)
    return int(not all(met for *_, met in found))


if __name__ == "__main__":
    sys.exit(main())
