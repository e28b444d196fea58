"""How well step times are predicted: `python benchmarks/predicted_time.py`.

For each model the program in program order, a plan that recomputes at 70 % of its peak, and the whole step in parts where
that is possible; for a language model of a long context also a loop over its logits, placed by hand. Models are those of
the zoo and the steps of `fission_steps.py`. Every round measures the costs of the operations anew and then
runs the programs in turns, so that a machine that is busy with other things is so for prediction and measurement.
Times are processor time of the process on one thread, since other programs do not add to it. The ratios are medians over rounds.

`step` is the whole call of a planned step, with its guards and what hands over the inputs; `program` is the function that
runs the operations, which is what is predicted. Predictions are told at the speed of the processor while the steps run. The
column `alone` times short calls alone in a loop.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import fission_steps
from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide.runtime.comparing.contestant_process import KEEPING_HEAP

SEED = 0
ROUNDS = 3
PEAK = "70%"
SIZES = ("tiny", "small")
LONG_CONTEXT = "long context"
TOKENS = 1021  # a length that no other dim has
WORDS = 16000
PARTS = 16
STEP_PARTS = 4
SECONDS_A_ROUND = 1.5  # of each program
PLAN_S = 5.0
MOST_STEPS = 100
CLOSE, CLOSE_RATIO = 0.10, 0.05


def long_context() -> tuple[Callable[..., Any], Any]:
    """A step of a small language model on one long text; its logits are 62 MiB."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Embedding(WORDS, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
    head = nn.Linear(128, WORDS, bias=False)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)

    def step(batch: Any) -> Any:
        words, following = batch
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(model(words)), following, reduction="sum") / TOKENS
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randint(0, WORDS, (TOKENS,)), torch.randint(0, WORDS, (TOKENS,)))


def logits_loop(graph: Any) -> Any:
    """The rewrite that runs all that touches logits in parts along the tokens."""
    from neaptide.ir.axes import Along
    from neaptide.transform.rules.fission import fission

    extents = [tuple(extent.constant_value() for extent in value.shape) for value in graph.values]
    logits = {v for v, shape in enumerate(extents) if TOKENS in shape and WORDS in shape}
    region = [n.id for n in graph.nodes if logits.intersection((*n.inputs, *n.outputs))]
    made = {v for n in region for v in graph.nodes[n].outputs}
    handed = {v for n in region for v in graph.nodes[n].inputs} - made
    inputs = {v: Along(extents[v].index(TOKENS)) for v in sorted(handed) if TOKENS in extents[v]}
    return fission(graph, region, length=TOKENS, parts=PARTS, inputs=inputs)


@dataclass
class Timed:
    """A program and what was seen of it; lists have an entry for each round."""

    name: str
    run: Callable[[], object]
    graph: Any
    schedule: Any
    predicted: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    program_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    fresh_pages: list[int] = field(default_factory=list)


def measure(spec: str, rounds: int) -> dict[str, Any]:
    """All programs of one model."""
    import torch

    from neaptide import zoo
    from neaptide.policy.prepared_step import prepare
    from neaptide.runtime.calls.executor import Executable
    from neaptide.runtime.comparing import contestants

    torch.set_num_threads(1)
    own = spec.partition("@")[0] in fission_steps.NAMES
    named = fission_steps.factory if own else zoo.factory
    factory = long_context if spec == LONG_CONTEXT else named(spec)
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=spec)
    variants = {"baseline": prepared.baseline_variant()} | plans(prepared, spec)
    programs = []
    for name, variant in variants.items():
        contestant = contestants.planned_contestant(name, factory, SEED, contestants.rebind(variant))
        planned = variant.graphs[0]
        programs.append(Timed(name, contestant.run, planned.graph, planned.schedule))
        for _ in range(3):
            contestant.run()

    inside: list[float] = []
    run = Executable.run

    def timed(self: Any, *args: Any) -> Any:
        function = self._function

        def within(*operands: Any) -> Any:
            before = time.process_time()
            try:
                return function(*operands)
            finally:
                inside.append(time.process_time() - before)

        self._function = within
        try:
            return run(self, *args)
        finally:
            self._function = function

    with mock.patch.object(Executable, "run", timed):
        for _ in range(rounds):
            steps = _round(programs, inside, prepared.device)
    return {"name": spec, "steps": steps, "programs": [summary(p, programs[0]) for p in programs]}


def plans(prepared: Any, spec: str) -> dict[str, Any]:
    """The planned programs of a model, by name."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    limits = Limits(time_s=PLAN_S, seed=SEED)
    found = {"recompute": prepared.plan(Ask(Budget(peak=PEAK), limits=limits)).variant}
    split = step_in_parts(prepared)
    if split is not None:
        found[f"in {STEP_PARTS} parts"] = split
    if spec == LONG_CONTEXT:
        loop = logits_loop(prepared.captured.steady.graph)
        found["loop"] = prepared.plan(Ask(Budget(peak="100%"), limits=limits, rewrites=(loop,))).variant
    return found


def step_in_parts(prepared: Any) -> Any:
    """The usual step, split from the first operation to the last in program order; None where it cannot be."""
    from neaptide.ops import registry
    from neaptide.planner.variants.choices import Choices
    from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant

    first, *others = map(PlannedGraph.captured, prepared.captured.programs)
    choices = Choices(registry(), first.objection)
    found = choices.after(choices.begun(first.graph))
    whole = next((choice for choice in found if choice.regions[0].kind == "step"), None)
    variant = None if whole is None else choices.taken(whole, min(STEP_PARTS, whole.length))
    if variant is None:
        return None
    return PlannedVariant(prepared.captured, (first.rewritten(variant.edited, variant.rewrites), *others))


def _round(programs: list[Timed], inside: list[float], device: Any) -> int:
    """Costs anew, then all programs in turns; how many steps of each."""
    from neaptide.cost.cache import OpCostCache
    from neaptide.cost.host import page_faults
    from neaptide.cost.measured import MeasuredCost
    from neaptide.cost.model import EstimatedCost
    from neaptide.ops import registry

    now = EstimatedCost(device, registry())
    with tempfile.TemporaryDirectory() as folder:
        alone = MeasuredCost(registry(), OpCostCache(Path(folder) / "alone"), fallback=now)
        with mock.patch("neaptide.cost.timing.op_session.SHORT_S", 0.0):
            for program in programs:
                alone.prepare(program.graph)
                program.alone.append(seconds(alone, program))
        costs = MeasuredCost(registry(), OpCostCache(Path(folder) / "all"), fallback=now)
        for program in programs:
            costs.prepare(program.graph)
            program.predicted.append(seconds(costs, program))
    steps = max(3, min(MOST_STEPS, int(SECONDS_A_ROUND / min(program.predicted[-1] for program in programs))))
    seen: dict[str, list[tuple[float, float, int]]] = {program.name: [] for program in programs}
    clocks = {"predicted": costs.clock(), "alone": alone.clock()}
    speeds = []
    for _ in range(steps):
        for program in programs:
            pages, before = page_faults() or 0, time.process_time()
            program.run()
            seen[program.name].append(
                (inside[-1], time.process_time() - before, (page_faults() or 0) - pages)
            )
            speeds.append(clocks["predicted"].reference_now_s())
    for program in programs:
        ran, stepped, pages = zip(*seen[program.name], strict=True)
        program.program_s.append(statistics.median(ran))
        program.step_s.append(statistics.median(stepped))
        program.fresh_pages.append(int(statistics.median(pages)))
        for way, clock in clocks.items():  # as at the speed of the steps
            getattr(program, way)[-1] *= statistics.fmean(speeds) / clock.reference_s
    return steps


def seconds(cost: Any, program: Timed) -> float:
    """What a cost model says of a program."""
    graph, schedule = program.graph, program.schedule
    return sum(
        cost.seconds(graph, graph.nodes[step.target], schedule.bodies) for step in schedule.node_steps()
    )


def summary(program: Timed, baseline: Timed) -> dict[str, Any]:
    """Medians over rounds; each ratio is taken within a round."""

    def ratio(above: list[float], below: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(above, below, strict=True))

    return {
        "name": program.name,
        "program_seconds": statistics.median(program.program_s),
        "step_seconds": statistics.median(program.step_s),
        "fresh_pages": int(statistics.median(program.fresh_pages)),
        "predicted_seconds": statistics.median(program.predicted),
        "predicted_over_measured": ratio(program.predicted, program.program_s),
        "alone_over_measured": ratio(program.alone, program.program_s),
        "predicted_ratio": ratio(program.predicted, baseline.predicted),
        "alone_ratio": ratio(program.alone, baseline.alone),
        "measured_ratio": ratio(program.program_s, baseline.program_s),
        "rounds": {
            "predicted": program.predicted,
            "alone": program.alone,
            "program": program.program_s,
            "step": program.step_s,
        },
    }


def text(result: dict[str, Any]) -> str:
    lines = []
    programs = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["name"], "failed", row["failure"], *[""] * 6])
            continue
        for made in row["programs"]:
            programs.append(made)
            lines.append(
                [
                    row["name"] if made["name"] == "baseline" else f"  {made['name']}",
                    f"{made['step_seconds'] * 1e3:.2f}",
                    f"{made['program_seconds'] * 1e3:.2f}",
                    f"{made['predicted_seconds'] * 1e3:.2f}",
                    f"{made['predicted_over_measured']:.2f}",
                    f"{made['alone_over_measured']:.2f}",
                    str(made["fresh_pages"]),
                    f"{made['measured_ratio']:.3f}",
                    f"{made['predicted_ratio']:.3f}",
                ]
            )
    columns = ("model", "step (ms)", "program (ms)", "predicted (ms)", "over program", "alone")
    shown = table((*columns, "fresh pages", "to baseline", "predicted"), lines)
    return "\n".join([shown, *bars(programs)])


def bars(programs: list[dict[str, Any]]) -> list[str]:
    """How many programs each way of predicting comes close to."""
    others = [p for p in programs if p["name"] != "baseline"]
    found = []
    for way in ("predicted", "alone"):
        close = sum(abs(p[f"{way}_over_measured"] - 1) <= CLOSE for p in programs)
        ratios = sum(abs(p[f"{way}_ratio"] / p["measured_ratio"] - 1) <= CLOSE_RATIO for p in others)
        found.append(
            f"{way}: {close} of {len(programs)} programs within {CLOSE:.0%} of the measured time, "
            f"{ratios} of {len(others)} ratios to the baseline within {CLOSE_RATIO:.0%}"
        )
    return found


def main() -> None:
    from neaptide import zoo

    names = (*zoo.names(), *fission_steps.NAMES)
    specs = [f"{name}@{size}" for size in SIZES for name in names] + [LONG_CONTEXT]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of measuring costs and then steps")
    parser.add_argument("--models", nargs="*", default=specs, help="specifications of the zoo")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.rounds)))
        return
    rows = []
    for spec in asked.models:
        say(spec)
        part = run_part(
            *("predicted_time.py", "--one", spec, f"--rounds={asked.rounds}"),
            timeout_s=900,
            environment=KEEPING_HEAP,
        )
        rows.append({"name": spec} | part)
        settings = {"peak": PEAK, "parts": PARTS, "step_parts": STEP_PARTS, "tokens": TOKENS}
        settings["not_run"] = [name for name in specs if name not in asked.models]
        result = recorded(rows, seed=SEED, repeats=asked.rounds, **settings)
        save("predicted_time", result, asked.output)
    print(text(result))


if __name__ == "__main__":
    main()
