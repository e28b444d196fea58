"""The table and the picture of the README: `python benchmarks/front_page.py [MODEL ...] [--keep] [--check]`.

Four training steps of the zoo, really run on one thread: eager, `torch.utils.checkpoint` around each block, a plan for the very
peak that checkpointing measured, and Inductor (`model.compile()`). Peaks are counted by the allocator's events, processor times
are taken in turns in one process, and a ratio is the median over rounds. For GPT-2 the bytes over time of eager and of the plan are
kept as well. Searches are limited by work. `front_page.json` is written when all models ran; README and picture are written
from it, and `--check` only says whether they agree with it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from bench_record import MIB, RESULTS, recorded, save
from model_rows import measured_rows
from neaptide import zoo
from quoting import in_markdown, made_on, quoted
from recompute_zoo import PART_S, SEED, STEPS, WORK, Field, Peer

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
PICTURE: Final = ROOT / "docs" / "bytes-over-time.svg"
NAME: Final = "front_page"
ROUNDS: Final = 5
TITLES: Final = {
    "gpt2": "GPT-2, 12 layers",
    "resnet50": "ResNet-50",
    "vit": "ViT, 12 layers",
    "unet": "U-Net",
}
DRAWN: Final = "gpt2"
DRAWN_PROGRAMS: Final = {"eager": "eager", "plan as by block": "neaptide"}
PROGRAMS: Final = ("eager", "by block", "plan as by block", "inductor")
COLUMNS: Final = ("training step", "eager", "`torch.utils.checkpoint`", "neaptide", "Inductor")
_MOMENTS: Final = 300  # of a curve


def measure(spec: str, rounds: int, work: int) -> dict[str, Any]:
    """One model: its programs, measured in this process."""
    import torch

    from checkpoint_peers import by_block
    from neaptide.runtime.comparing import contestants

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, SEED)
    losses = [float(step(batch)) for _ in range(STEPS)]
    # Dynamo patches modules and optimizers, which captured steps would notice: it comes first.
    compiled = Peer(factory, compile_models, losses)
    field = Field(spec, work)
    eager = contestants.eager_contestant(factory, SEED)
    eager.run()
    field.run("eager", eager.run, eager.persistent, budget_bytes=None, bitwise_equal=True)
    field.add_peer("by block", Peer(factory, by_block, losses))
    assert compiled.run is not None, compiled.note
    field.run(
        "inductor", compiled.run, compiled.persistent, budget_bytes=None, bitwise_equal=compiled.same_losses
    )
    field.time(rounds)
    curves = {}
    if spec.startswith(DRAWN):
        curves = {name: curve(field.runners[name], field.persistents[name]) for name in DRAWN_PROGRAMS}
    return {"spec": spec, "programs": field.rows, "curves": curves}


def compile_models(step: Callable[..., Any]) -> int:
    """Compile the models of a step in place; gives their number."""
    from neaptide.frontends.state.state_finder import find_state

    models = list(find_state(step).modules.values())
    for model in models:
        model.compile()
    return len(models)


def curve(run: Callable[[], Any], persistent: Callable[[], Iterable[Any]]) -> list[int]:
    """The most bytes in each of some equal stretches of the time of one step."""
    from neaptide.cost.cards import allocator_events
    from neaptide.runtime.measuring.meter import storage_bytes

    live = storage_bytes(persistent())
    events = allocator_events.record(run, persistent=persistent()).events
    first, last = events[0].time_ns, events[-1].time_ns
    most = [0] * _MOMENTS
    at = 0
    for event in events:
        moment = min((event.time_ns - first) * _MOMENTS // max(last - first, 1), _MOMENTS - 1)
        for passed in range(at, moment + 1):
            most[passed] = max(most[passed], live)
        live += event.signed_bytes
        most[moment] = max(most[moment], live)
        at = moment
    return most


def table(result: Mapping[str, Any]) -> str:
    """The table in Markdown, with the machine that it was measured on."""
    steps = [(TITLES[row["spec"].partition("@")[0]], _by_name(row)) for row in result["rows"]]
    exact = sum(programs["plan as by block"]["bitwise_equal"] for _, programs in steps)
    machine = result["machine"]
    said = (
        f"Peak, and processor time over eager's, the median of {result['repeats']} rounds in turns. neaptide gets the peak of"
        f" `checkpoint` around each block as its budget; {exact} of {len(steps)} plans have eager's bits. {made_on(result)},"
        f" load {machine['load_average'][1]:.0f} on {machine['cores']} cores; torch {result['versions']['torch']}."
    )
    rows = [[title, *(_cell(programs[name]) for name in PROGRAMS)] for title, programs in steps]
    return f"{in_markdown(COLUMNS, rows)}\n\n{said}"


def _by_name(model: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["program"]: row for row in model["programs"]}


def _cell(row: Mapping[str, Any]) -> str:
    return f"{row['measured_allocator_peak_bytes'] / MIB:.0f} MiB, {row['cpu_ratio']:.2f}"


def picture(model: Mapping[str, Any]) -> str:
    """Bytes over time of one step, as SVG. Wall time is told as processor time, which other programs do not add to."""
    from neaptide.report.charts.chart import Axis, Chart, Colour, Key, Line, Plot, byte_marks
    from neaptide.report.charts.svg import chart_svg

    took = {name: _by_name(model)[name]["cpu_seconds"] for name in DRAWN_PROGRAMS}
    peaks = {name: max(model["curves"][name]) for name in DRAWN_PROGRAMS}
    most_s, most_bytes = max(took.values()), max(peaks.values())
    lines, keys = [], []
    for (name, label), colour in zip(DRAWN_PROGRAMS.items(), (Colour.ORANGE, Colour.BLUE), strict=True):
        points = model["curves"][name]
        times = (took[name] * moment / len(points) for moment in range(len(points)))
        lines += [
            Line(tuple(zip(times, points, strict=True)), colour, is_stepped=True),
            Line(((0, peaks[name]), (most_s, peaks[name])), colour, is_dashed=True),
        ]
        keys.append(Key(f"{label}, {peaks[name] / MIB:.0f} MiB", colour))
    seconds = tuple((tenth / 10, f"{tenth / 10:.1f} s") for tenth in range(0, int(most_s * 10) + 1, 2))
    plot = Plot(
        Axis(0, most_s, marks=seconds), Axis(0, most_bytes, marks=byte_marks(most_bytes)), lines=tuple(lines)
    )
    title = f"{TITLES[DRAWN]}: one training step"
    return chart_svg(Chart(title, "allocated bytes over time, measured", (plot,), tuple(keys), height=400))


def written(result: Mapping[str, Any], page: str) -> tuple[str, str]:
    """The page with its table, and the picture."""
    drawn = next(row for row in result["rows"] if row["curves"])
    return quoted(page, table(result), NAME), picture(drawn)


def main() -> int:
    """Measure, write README and picture; or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names of zoo models; by default those of the README")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed steps of each program, in turns")
    parser.add_argument("--work", type=int, default=WORK, help="changes that each search may try")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--keep", action="store_true", help="take models that an earlier run has measured")
    parser.add_argument("--check", action="store_true", help="measure and write nothing, compare")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.rounds, asked.work)))
        return 0
    if not asked.check:
        options = [f"--rounds={asked.rounds}", f"--work={asked.work}"]
        rows = measured_rows(
            "front_page.py",
            asked.models or list(TITLES),
            asked.output / "parts",
            size=asked.size,
            options=options,
            keep=asked.keep,
            timeout_s=PART_S,
            prefix="front-",
            environment={"TORCHINDUCTOR_COMPILE_THREADS": "1"},
        )
        failed = [f"{row['spec']}: {row['failure']}" for row in rows if "failure" in row]
        if failed or [row["spec"].partition("@")[0] for row in rows] != list(TITLES):
            print("\n".join(failed))
            return int(bool(failed))
        save(NAME, recorded(rows, seed=SEED, repeats=asked.rounds, work=asked.work), asked.output)
    result = json.loads((asked.output / f"{NAME}.json").read_text(encoding="utf-8"))
    page = README.read_text(encoding="utf-8")
    readme, svg = written(result, page)
    if asked.check:
        return int(readme != page or svg != PICTURE.read_text(encoding="utf-8"))
    README.write_text(readme, encoding="utf-8", newline="\n")
    PICTURE.write_text(svg, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
