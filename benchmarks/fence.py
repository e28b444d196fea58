"""Answers that no change of the code may make worse: `python benchmarks/fence.py [--record] [--only SECTION ...] [--match TEXT]`.

Every answer is found under a limit of work for a device of a data sheet, so it is the same on every machine:

* `zoo`: every model, order and recomputation with the same bits, at 75, 50 and 25 % of the peak and at the lowest;
* `close`: every model with sums in another order, the lowest peak within 5 and 10 % more time;
* `dynamic`: ten models with dims that vary, one program under a limit, at six shapes;
* `host`: two models at three budgets with storages that may wait on the host;
* `order`, `layout`, `recompute`, `curve`: the cases of `before_and_after_cases.py`.

`--record` writes `results/fence.json`; without it the answers are compared with that file, and what changed is printed: all
numbers are such that less is better. The exit code is 1 where one is worse. CPU seconds stand beside it, for the same machine.
What is captured of ordinary scripts is a table of its own (`programs_table.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import before_and_after_cases
import before_and_after_solver
from before_and_after import compare
from bench_record import RESULTS, recorded, run_part, save, say
from neaptide import zoo

Answers = dict[str, dict[str, Any]]
RESULT: Final = RESULTS / "fence.json"
SEED: Final = 0
DEVICE: Final = "rtx3090"
WORK: Final = 4_000
CLOSE_WORK: Final = 1_500
MODEL_SIZE: Final = "tiny,batch=1024"
PEAKS: Final = ("75%", "50%", "25%", "min")
LATENCIES: Final = ("+5%", "+10%")
HOST: Final = ("gpt2", "unet")
HOST_PEAKS: Final = ("60%", "40%", "25%")
LENGTHS: Final = {"batch": {0: (1, 64), 1: (2, 64)}}
IMAGES: Final = {"batch": {0: (1, 64)}}
DYNAMIC: Final = {
    **dict.fromkeys(("mlp", "resnet50", "unet", "vit"), IMAGES),
    **dict.fromkeys(("bert", "gpt2", "gptneo", "btlm", "llama"), LENGTHS),
    "lstm": {"batch": {1: (1, 64)}},
}
DYNAMIC_SHARES: Final = (0.6, 0.75, 0.9, 1.0)
_ALLOWED: Final = 0.002  # above the recorded answer, for an exception that is named
_CORES: Final = ("order", "layout", "recompute", "curve")


def zoo_answers(model: str) -> Answers:
    """The steady program at each budget: bytes above it as a share, and added time; the lowest peak as a share."""
    prepared = _prepared(f"{model}@{MODEL_SIZE}", device="meta")
    return {peak: _answer(prepared, WORK, peak=peak) for peak in PEAKS}


def close_answers(model: str) -> Answers:
    """The lowest peak within each limit of time, as a share of program order's."""
    prepared = _prepared(f"{model}@{MODEL_SIZE}", device="meta")
    return {
        latency: _answer(prepared, CLOSE_WORK, latency=latency, numerics="close") for latency in LATENCIES
    }


def host_answers(model: str) -> Answers:
    """Added time at each budget, where storages may wait on the host."""
    prepared = _prepared(f"{model}@{MODEL_SIZE}", device="meta")
    return {peak: _answer(prepared, WORK, peak=peak, host="1TiB") for peak in HOST_PEAKS}


def dynamic_answers(model: str) -> Answers:
    """The least share of the peak that is kept to; above it, and estimated seconds, from the smallest shape to the largest."""
    from neaptide.cost.presets import get_device
    from neaptide.runtime.steps.arena_report import predicted_at, predicted_seconds_at

    dims = DYNAMIC[model]
    options = ",layers=12" if model == "mlp" else ",seq=64" if dims is LENGTHS else ""
    prepared = _prepared(f"{model}@tiny{options}", dynamic=dims)
    began = time.process_time()
    share, planned = _for_all_shapes(prepared)
    seconds = time.process_time() - began
    found: Answers = {"share": {"values": [share], "cpu_seconds": 0.0}}
    for number in range(6):
        shape = {dim.name: dim.low + (dim.high - dim.low) * number // 5 for dim in planned.graph.dims}
        _, peak = predicted_at(planned, shape)
        assert planned.limit_bytes is not None
        above = max(peak - planned.limit_bytes, 0) / planned.limit_bytes
        run_s = predicted_seconds_at(planned, shape, get_device(DEVICE))
        found[" ".join(map(str, shape.values()))] = {"values": [above, run_s], "cpu_seconds": seconds / 6}
    return found


def _for_all_shapes(prepared: Any) -> tuple[float, Any]:
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.errors import InfeasibleBudget
    from neaptide.outcome import Limits
    from neaptide.policy.points.for_all_shapes import for_all_shapes

    for share in DYNAMIC_SHARES[:-1]:
        asked = Ask(Budget(f"{share:.0%}"), limits=Limits(work=WORK, seed=SEED))
        try:
            return share, for_all_shapes(prepared, asked).graphs[0]
        except InfeasibleBudget:
            continue
    asked = Ask(Budget("100%"), limits=Limits(work=WORK, seed=SEED))
    return DYNAMIC_SHARES[-1], for_all_shapes(prepared, asked).graphs[0]


def core_answers(room: str) -> Answers:
    """Problems that need no framework, one after the other in this process."""
    from neaptide.outcome import Limits

    table = "recompute" if room == "curve" else room
    found: Answers = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in before_and_after_cases.TABLES[table](Path(folder), None):
            if case["room"] == room:
                limits = Limits(work=case["work"], seed=SEED)
                solve = before_and_after_solver.ROOMS[room](Path(case["file"]), limits, case)
                began = time.process_time()
                values = solve()["values"]
                seconds = time.process_time() - began
                key = f"{case['section']} {case['case']} {case.get('share', '')}".strip()
                found[key] = {"values": values, "cpu_seconds": round(seconds, 3)}
    return found


def _prepared(spec: str, *, device: str = "cpu", dynamic: Any = None) -> Any:
    from neaptide.frontends.torch_step import capture_step
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device=device)()
    return PreparedStep(capture_step(step, (batch,), name=spec, dynamic=dynamic), device=DEVICE)


def _answer(prepared: Any, work: int, *, numerics: str = "bitwise", **budget: Any) -> dict[str, Any]:
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    limits = Limits(work=work, seed=SEED)
    asked = Ask(Budget(**budget), limits=limits, numerics=numerics, workers=1)
    before = prepared.as_written()
    began = time.process_time()
    program = prepared.plan(asked).plan.programs[0]
    seconds = time.process_time() - began
    made = program.predictions
    peak = made.peak_with_workspace_bytes
    if budget.get("peak") in {None, "min"}:
        values = [peak / before.peak_with_workspace_bytes]
    else:
        above = max(peak - program.budget_bytes, 0)
        # Above the budget less memory is better, whatever time it takes.
        values = [above / program.budget_bytes, 0.0 if above else made.seconds / before.seconds - 1.0]
    return {"values": values, "cpu_seconds": round(seconds, 2)}


SECTIONS: Final[Mapping[str, tuple[Callable[[str], Answers], Sequence[str]]]] = {
    "zoo": (zoo_answers, zoo.names()),
    "close": (close_answers, zoo.names()),
    "dynamic": (dynamic_answers, tuple(DYNAMIC)),
    "host": (host_answers, HOST),
    **{room: (core_answers, (room,)) for room in _CORES},
}


def collect(sections: Sequence[str], match: str) -> list[dict[str, Any]]:
    """A row for each model or room, each found in a process of its own; one that fails has its `failure`."""
    rows = []
    for section in sections:
        for name in SECTIONS[section][1]:
            if match in name:
                say(f"{section} {name}")
                answers = run_part("fence.py", "--one", f"{section}:{name}", timeout_s=3600.0)
                rows.append({"section": section, "name": name, "answers": answers})
    return rows


def changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each answer that is not the recorded one, and for each case that only one side has."""
    known = {(row["section"], row["name"]): row["answers"] for row in before}
    for row in after:
        there = known.get((row["section"], row["name"]), {})
        for case in dict.fromkeys([*there, *row["answers"]]):
            old, new = there.get(case), row["answers"].get(case)
            where = f"{row['section']} {row['name']} {case}"
            if not isinstance(old, dict) or not isinstance(new, dict):
                yield f"worse  {where}: {old} -> {new}"
            elif (verdict := compare(old["values"], new["values"])) != "equal":
                pairs = zip(old["values"], new["values"], strict=True)
                slight = all(a == b or (None not in (a, b) and b <= a + _ALLOWED) for a, b in pairs)
                yield f"{'slight' if slight and verdict != 'better' else verdict} {where}: {old['values']} -> {new['values']}"


def planning_seconds(rows: Sequence[Mapping[str, Any]], of: Sequence[Mapping[str, Any]]) -> float:
    """CPU seconds of all cases that both have."""
    both = {(row["section"], row["name"]) for row in of}
    return sum(
        answer["cpu_seconds"]
        for row in rows
        if (row["section"], row["name"]) in both
        for answer in row["answers"].values()
        if isinstance(answer, dict)
    )


def main() -> int:
    """Record the answers, or compare them with those recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the answers down as those to keep")
    parser.add_argument("--only", nargs="+", choices=tuple(SECTIONS), default=tuple(SECTIONS))
    parser.add_argument("--match", default="", help="part of the names of models")
    parser.add_argument("--one", metavar="SECTION:NAME", help="find the answers of one here; print JSON")
    asked = parser.parse_args()
    if asked.one:
        section, _, name = asked.one.partition(":")
        print(json.dumps(SECTIONS[section][0](name)))
        return 0
    rows = collect(asked.only, asked.match)
    if failed := [row for row in rows if "failure" in row["answers"]]:
        print(
            "\n".join(f"failed {row['section']} {row['name']}: {row['answers']['failure']}" for row in failed)
        )
        return 1
    if asked.record:
        old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
        new = {(row["section"], row["name"]) for row in rows}
        kept = [row for row in old if (row["section"], row["name"]) not in new]
        save(RESULT.stem, recorded([*kept, *rows], seed=SEED, repeats=1, device=DEVICE, work=WORK))
        return 0
    before = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    found = list(changes(before, rows))
    print("\n".join(found) or "every answer is the recorded one")
    print(f"CPU seconds: {planning_seconds(before, rows):.1f} -> {planning_seconds(rows, before):.1f}")
    return int(any(line.startswith(("worse", "mixed")) for line in found))


if __name__ == "__main__":
    sys.exit(main())
