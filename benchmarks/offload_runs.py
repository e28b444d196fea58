"""Storages on the host, really run: `python benchmarks/offload_runs.py [--models gpt2 ...] [--size tiny] [--rates 200 20]`.

For models of the zoo in program order. By hand, the `COUNT` largest storages that the forward makes and the backward needs
are stored after their last use in the forward and loaded before their first one in the backward; each copy has a part of
the time between (`SHARE`) before it is waited for. On the CPU storages wait in a file, held to a rate.

Printed beside each other:

* the peak, predicted and measured (storages seen at the dispatcher), which are equal to the byte, and so are the bytes on the
  host;
* whether three steps give eager's bits;
* the time of the step, simulated and measured. Simulated: the time without transfers, measured in turns with it, shared out
  over the operations as their measured costs are, and played with two copy engines (`schedule.timeline`); the latency of a
  copy is measured as well. Both times are
  the least of the rounds, which run ahead of other programs where the system allows it: a step with transfers has three
  threads, and what else a machine does only ever adds to the time that these take. Medians are in the JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench_record import MIB, RESULTS, recorded, save, say, table
from model_rows import measured_rows
from neaptide import zoo

SEED: Final = 0
ROUNDS: Final = 15
COUNT: Final = 8
SHARE: Final = 0.25
RATES: Final = (200.0, 20.0)
"""MB/s, each way."""
_LATENCY_BYTES: Final = 1024
_LATENCY_COPIES: Final = 50
PART_S: Final = 900.0
BAR: Final = 0.15
COLUMNS: Final = (
    "step",
    "MB/s",
    "stored (MiB)",
    "peak (MiB)",
    "of without",
    "exact",
    "bits",
    "without (ms)",
    "simulated (ms)",
    "measured (ms)",
    "ratio",
    "exposed",
)


def by_hand(graph: Any, count: int, share: float) -> tuple[Any, ...]:
    """Offloads of the largest storages that wait between the forward and the backward of a graph in program order."""
    from neaptide.analysis.legality.schedule import check_schedule
    from neaptide.errors import VerifyError
    from neaptide.ir.schedule import Offload, Schedule
    from neaptide.ops import registry
    from neaptide.schedule.evaluate import Evaluator
    from neaptide.schedule.problem import compile_problem

    problem = compile_problem(graph, registry())
    order = Schedule.program_order(graph)
    evaluator = Evaluator(problem, range(len(graph.nodes)))
    first = next(node.id for node in graph.nodes if node.source.phase == "backward")
    owned = set(graph.input_storages())
    found: list[Any] = []
    for storage in sorted(range(len(graph.storages)), key=lambda s: (-problem.storage_bytes[s], s)):
        places = sorted(evaluator.places[e] for e in evaluator.events(storage))
        ahead, behind = [p for p in places if p < first], [p for p in places if p >= first]
        if storage in owned or not ahead or not behind or not problem.storage_bytes[storage]:
            continue
        last, then = ahead[-1], behind[0]
        part = int(share * (then - last))
        offload = Offload(storage, 0, last, last + part, then - part, then)
        try:
            check_schedule(graph, order.with_offloads([*found, offload]), registry())
        except VerifyError:
            continue
        found.append(offload)
        if len(found) == count:
            break
    return tuple(found)


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Run before other programs of the machine, where the system allows that."""
    threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        say(f"other programs may be in the way: {error}")
    yield
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def copy_latency(slow: Any) -> float:
    """Seconds of a copy beside those of its bytes: two threads are woken, and a pause ends late."""
    import torch

    from neaptide.copy_engines.file_copy_engine import FileCopyEngine
    from neaptide.copy_engines.host_pool import HostPool

    tensor = torch.zeros(_LATENCY_BYTES, dtype=torch.uint8)
    pool = HostPool(_LATENCY_BYTES, FileCopyEngine(_LATENCY_BYTES, slow))
    found = []
    for _ in range(_LATENCY_COPIES):
        began = time.perf_counter()
        copy = pool.store(tensor)
        copy.leave()
        found.append(time.perf_counter() - began)
        copy.load()
        copy.arrive()
        del copy
    return max(statistics.median(found) - _LATENCY_BYTES / slow.bytes_per_s, 0.0)


def one(spec: str, rates: list[float], rounds: int, count: int) -> dict[str, Any]:
    """A model at each rate."""
    import torch

    from neaptide.analysis.profile_bytes import memory_profile
    from neaptide.copy_engines.copy_engine import SlowMemory
    from neaptide.cost.devices import Link
    from neaptide.ir.schedule import Schedule
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.runtime.comparing import contestants, verification
    from neaptide.runtime.measuring.timing import interleaved
    from neaptide.runtime.steps.capturing import capture
    from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
    from neaptide.schedule.timeline import simulate_timeline
    from neaptide.zoo.spec import factory

    torch.set_num_threads(1)
    make = factory(spec)
    step, batch = contestants.build(make, SEED)
    captured = capture(step, (batch,))
    prepared = PreparedStep(captured)
    graph = captured.steady.graph
    problem = prepared.problem()
    plain = Schedule.program_order(graph)
    offloads = by_hand(graph, count, SHARE)
    schedule = plain.with_offloads(offloads)
    sizes = prepared.prices().storage_bytes  # recurrent kernels make more bytes than are recorded
    before = memory_profile(graph, plain, storage_bytes=sizes).peak_bytes
    profile = memory_profile(graph, schedule, storage_bytes=sizes)
    expected = verification.verify_eager(make, SEED)
    programs = [PlannedGraph.captured(program) for program in captured.programs]
    stored = [
        replace(programs[0], schedule=schedule, host_bytes=profile.peak_host_bytes),
        *programs[1:],
    ]
    without = PlannedVariant(captured, tuple(programs))
    rows = []
    for rate in rates:
        slow = SlowMemory(bytes_per_s=rate * 1e6)
        variant = PlannedVariant(captured, tuple(stored), slow=slow)
        bits = verification.verify_planned(make, SEED, contestants.rebind(variant), expected)[0]
        runners = {
            name: contestants.planned_contestant(name, make, SEED, contestants.rebind(planned))
            for name, planned in (("without", without), ("stored", variant))
        }
        measured = contestants.measure([runners["stored"]], 0)["stored"].memory.measured_peak_bytes
        contestants.measure([runners["without"]], 0)
        with ahead_of_others():
            latency_s = copy_latency(slow)
            times = interleaved({name: runner.run for name, runner in runners.items()}, rounds)
        least = {name: min(found.wall_s) for name, found in times.items()}
        factor = least["without"] / sum(problem.seconds)
        scaled = replace(problem, seconds=tuple(s * factor for s in problem.seconds))
        out, back = (Link(*ends, rate * 1e6, latency_s) for ends in (("host", "disk"), ("disk", "host")))
        played = simulate_timeline(scaled, schedule, out, back)
        rows.append(
            {
                "rate_mb_s": rate,
                "latency_s": latency_s,
                "offloads": len(offloads),
                "stored_bytes": sum(problem.storage_bytes[offload.storage] for offload in offloads),
                "predicted_peak_bytes": profile.peak_bytes,
                "measured_peak_bytes": measured,
                "peak_without_bytes": before,
                "predicted_host_bytes": profile.peak_host_bytes,
                "bitwise": bits.bitwise_equal,
                "without_s": least["without"],
                "simulated_s": played.seconds,
                "measured_s": least["stored"],
                "median_measured_s": statistics.median(times["stored"].wall_s),
                "median_without_s": statistics.median(times["without"].wall_s),
                "ratio": least["stored"] / played.seconds,
                "exposed_share": played.exposed_s / played.seconds,
            }
        )
    return {"rows": rows}


def text(result: dict[str, Any]) -> str:
    """The table, and what is beyond the bar."""
    lines, others = [], []
    for model in result["rows"]:
        if "failure" in model:
            others.append(f"{model['spec']} failed: {model['failure']}")
            continue
        for row in model["rows"]:
            lines.append(cells(model["spec"], row))
            if abs(row["ratio"] - 1) > BAR:
                others.append(
                    f"{model['spec']} at {row['rate_mb_s']:g} MB/s is {row['ratio']:.2f} of the simulated time"
                )
    return "\n".join([table(COLUMNS, lines), "", *others])


def cells(spec: str, row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    return [
        spec,
        f"{row['rate_mb_s']:g}",
        f"{row['stored_bytes'] / MIB:.3f}",
        f"{row['measured_peak_bytes'] / MIB:.3f}",
        f"{row['measured_peak_bytes'] / row['peak_without_bytes']:.3f}",
        "yes" if row["measured_peak_bytes"] == row["predicted_peak_bytes"] else "NO",
        "equal" if row["bitwise"] else "OTHER",
        f"{1e3 * row['without_s']:.2f}",
        f"{1e3 * row['simulated_s']:.2f}",
        f"{1e3 * row['measured_s']:.2f}",
        f"{row['ratio']:.3f}",
        f"{row['exposed_share']:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()))
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--rates", nargs="*", type=float, default=list(RATES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one, asked.rates, asked.rounds, asked.count)))
        return
    options = [f"--rounds={asked.rounds}", f"--count={asked.count}", "--rates", *map(str, asked.rates)]
    rows = measured_rows(
        "offload_runs.py",
        asked.models,
        asked.output / "parts",
        size=asked.size,
        options=options,
        keep=asked.keep,
        timeout_s=PART_S,
        prefix="offload-",
    )
    result = recorded(
        rows, seed=SEED, repeats=asked.rounds, size=asked.size, count=asked.count, share=SHARE, bar=BAR
    )
    save("offload_runs", result, asked.output)
    print(text(result))


if __name__ == "__main__":
    main()
