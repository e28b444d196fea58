"""Fused kernels in plans of whole steps: `python benchmarks/fused_steps.py [--models gpt2 mlp] [--size small] [--peer]`.

For each model of the zoo: the plan at 60 % whose bits are eager's, and a plan of fused kernels within the peak of that one,
beside eager; with `--peer` also Inductor on the step as PyTorch compiles it, its optimizer in eager. Times are medians of
processor seconds in turns, as ratios; peaks are counted by the allocator's events. The bars: on 10 of 13 the fused plan is
faster than the bitwise one, and its peak is predicted within 2 %. Each model runs in a process of its own, and its row is
kept as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

from bench_record import MIB, RESULTS, locked, recorded, run_part, save, say, table
from neaptide import zoo
from quoting import in_markdown, made_on

NAME: Final = "fused_steps"
SEED: Final = 0
PEAK: Final = "60%"
NEAR: Final = 0.02
TIMEOUT_S: Final = 3000.0
COLUMNS: Final = (
    "model",
    "peak of eager",
    "bitwise",
    "time",
    "fused",
    "time",
    "of bitwise",
    "off by",
    "compile (s)",
)


def examine(spec: str, repeats: int, time_limit_s: float) -> dict[str, Any]:
    """One model: peaks and times of its programs."""
    import torch

    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import prepare
    from neaptide.runtime.comparing import contestants as rivals
    from neaptide.runtime.measuring.timing import median_ratio

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = rivals.build(factory, SEED)
    prepared = prepare(step, (batch,), name=spec)
    prepared.prices()
    limits = Limits(time_s=time_limit_s, seed=SEED)
    bitwise = prepared.plan(Ask(Budget(peak=PEAK), limits=limits))
    allowed = bitwise.plan.program("steady").predictions.peak_with_workspace_bytes
    began = time.perf_counter()
    prepared.rewritten(0, ("fusion",))
    compiled_s = time.perf_counter() - began
    fused = prepared.plan(Ask(Budget(peak=allowed), limits=limits, rewrites=("fusion",), lowering="inductor"))
    plans = {"bitwise": bitwise, "fused": fused}
    running = [
        rivals.eager_contestant(factory, SEED),
        *(
            rivals.planned_contestant(name, factory, SEED, rivals.rebind(plan.variant))
            for name, plan in plans.items()
        ),
    ]
    measured = rivals.measure(running, repeats)
    row: dict[str, Any] = {"spec": spec, "compile_s": compiled_s}
    eager = measured["eager"]
    row["eager"] = {"peak_bytes": eager.memory.measured_allocator_peak_bytes}
    for name, plan in plans.items():
        found = measured[name]
        predicted = plan.plan.program("steady").predictions
        assert found.times is not None
        assert eager.times is not None
        row[name] = {
            "peak_bytes": found.memory.measured_allocator_peak_bytes,
            "predicted_peak_bytes": predicted.peak_with_workspace_bytes,
            "time": median_ratio(found.times.cpu_s, eager.times.cpu_s, seed=SEED).ratio,
        }
    both = measured["fused"].times, measured["bitwise"].times
    assert both[0] is not None
    assert both[1] is not None
    row["fused_of_bitwise"] = median_ratio(both[0].cpu_s, both[1].cpu_s, seed=SEED).ratio
    row["off_by"] = row["fused"]["peak_bytes"] / row["fused"]["predicted_peak_bytes"] - 1
    row["groups"] = sum(node.op == "neaptide.fused.default" for node in fused.variant.graphs[0].graph.nodes)
    return row


def peer(spec: str, repeats: int) -> dict[str, Any]:
    """Inductor on the step as PyTorch compiles it: its peak and its time as shares of eager's."""
    import torch

    from neaptide.runtime.comparing import contestants as rivals
    from neaptide.runtime.measuring.timing import median_ratio

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    eager = rivals.eager_contestant(factory, SEED)
    step, batch = rivals.build(factory, SEED)
    compiled = torch.compile(step, dynamic=False)
    other = rivals.eager_contestant(factory, SEED, "inductor")
    ours = rivals.Contestant("inductor", lambda: compiled(batch), other.persistent)
    measured = rivals.measure([eager, ours], repeats)
    times = {name: found.times for name, found in measured.items()}
    assert times["inductor"] is not None
    assert times["eager"] is not None
    return {
        "peak_bytes": measured["inductor"].memory.measured_allocator_peak_bytes,
        "time": median_ratio(times["inductor"].cpu_s, times["eager"].cpu_s, seed=SEED).ratio,
    }


def keep(row: dict[str, Any], repeats: int, **settings: Any) -> None:
    """Put a row among those that are kept."""
    path = RESULTS / f"{NAME}.json"
    with locked(RESULTS):
        old = json.loads(path.read_text())["rows"] if path.exists() else []
        rows = [*(one for one in old if one["spec"] != row["spec"]), row]
        save(NAME, recorded(rows, seed=SEED, repeats=repeats, **settings))


def cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as lines of a table: peaks and times as shares of eager's."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        eager = row["eager"]["peak_bytes"]
        lines.append(
            (
                row["spec"],
                f"{eager / MIB:.1f} MiB",
                *(cell for name in ("bitwise", "fused") for cell in _cells(row[name], eager)),
                f"{row['fused_of_bitwise']:.3f}",
                f"{row['off_by']:+.2%}",
                f"{row['compile_s']:.0f}",
            )
        )
    return lines


def verdict(rows: list[dict[str, Any]]) -> str:
    """The bars."""
    faster = sum(row["fused_of_bitwise"] < 1 for row in rows)
    near = sum(abs(row["off_by"]) <= NEAR for row in rows)
    return (
        f"faster than the bitwise plan: {faster} of {len(rows)}; predicted within 2 %: {near} of {len(rows)}"
    )


def text(rows: list[dict[str, Any]]) -> str:
    """The rows as a table, and the bars."""
    return f"{table(COLUMNS, cells(rows))}\n\n{verdict(rows)}"


def in_page(result: dict[str, Any]) -> str:
    """The table for the page of results."""
    rows = result["rows"]
    return f"{in_markdown(COLUMNS, cells(rows))}\n\n{made_on(result)}. {verdict(rows)}."


def _cells(found: dict[str, Any], eager: int) -> tuple[str, str]:
    return f"{found['peak_bytes'] / eager:.3f}", f"{found['time']:.3f}"


def main() -> None:
    """Measure the models that are named, or print what is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(zoo.names()))
    parser.add_argument("--size", default="small")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--part", nargs=2, metavar=("KIND", "SPEC"))
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    if asked.part:
        kind, spec = asked.part
        row = peer(spec, asked.repeats) if kind == "peer" else examine(spec, asked.repeats, asked.time_limit)
        print(json.dumps(row))
        return
    how = ("--repeats", str(asked.repeats), "--time-limit", str(asked.time_limit))
    for model in [] if asked.show else asked.models:
        spec = f"{model}@{asked.size}"
        row = run_part(Path(__file__).name, *how, "--part", "ours", spec, timeout_s=TIMEOUT_S)
        if "failure" not in row and asked.peer:
            row["inductor"] = run_part(Path(__file__).name, *how, "--part", "peer", spec, timeout_s=TIMEOUT_S)
        if "failure" in row:
            say(f"{spec}: {row['failure']}")
            continue
        keep(row, asked.repeats, time_limit_s=asked.time_limit)
        say(text([row]))
    path = RESULTS / f"{NAME}.json"
    if path.exists():
        print(text(json.loads(path.read_text())["rows"]))


if __name__ == "__main__":
    main()
