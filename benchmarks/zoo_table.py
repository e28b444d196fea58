"""Measure the zoo: `OMP_NUM_THREADS=1 python benchmarks/zoo_table.py --write`.

Prints the reference table in markdown and, with `--write`, puts it into `docs/reference/zoo.md` and the
numbers into `benchmarks/results/zoo_table.json`. Sizes `tiny` and `small` are run (three plain steps, then
one under the storage meter); `paper` is built on the meta device and only its parameters are counted.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bench_record import machine, versions
from neaptide import zoo
from neaptide.frontends.state.state_finder import find_state
from neaptide.runtime.comparing import contestants

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
COMMON_OPTIONS = ("lr", "batch", "optimizer", "precision")
INTRODUCTION = """# Models of the zoo

Look up the models that `zoo:SPEC` and `neaptide.zoo.factory(SPEC)` build: plain PyTorch training steps and their batches.

    SPEC = NAME[@SIZE][,OPTION...]     gpt2@small     resnet50@small,batch=4     bert@tiny,bf16,dropout=0.1

* **Size**: `tiny` (the default; for tests), `small` (a peak of 0.2 to 0.4 GiB, mostly activations) or `paper` (the
  published network, with batch and sequence or image of the MAGIS evaluation, Chen et al., ASPLOS 2024, where it has it).
* **Options**: those of the model (below), `seed`, `device`, and a precision, alone or as `precision=`: `fp32`, `bf16` (fp32
  parameters, forward and loss under `torch.autocast`) or `bf16_params` (the model in bf16, the default of `gptneo@paper`
  and `btlm@paper`). A tuple is written `layers=1-1-1-1`. `optimizer=` takes `adamw` or `sgd`.
* **Weights and data** follow from `seed`, which seeds torch's global generator; nothing is downloaded.
* **Dropout** is 0 at `tiny` and `small`. At `paper` it is 0.1 for gpt2, bert and unet2d, 0.65 for lstm, and 0 for the others.
* **Optimizers** have torch's default flags: AdamW, or SGD with momentum 0.9.
* **`device="meta"`** builds any size without allocating it. Meta tensors have no autocast: `bf16` is fp32 there.
"""
TABLE = """
## Models

Sizes are layers (or blocks per stage) \u00d7 width, batch \u00d7 sequence or image, parameters. The peak is that of storages in eager
at `small`. Every model also has the options `lr`, `batch` and `optimizer`.

| model | small | peak | paper | other options |
|---|---|---:|---|---|
"""


def configuration(parameters: dict[str, Any]) -> dict[str, Any]:
    """The columns that come from the catalogue."""
    depth = parameters.get("layers", parameters.get("multipliers", parameters.get("depth")))
    return {
        "layers": "-".join(map(str, depth)) if isinstance(depth, tuple) else str(depth),
        "width": parameters.get("width", parameters.get("growth")),
        "batch": parameters["batch"],
        "extent": parameters.get("seq", parameters.get("image", parameters.get("features"))),
    }


def measure(name: str, size: str) -> dict[str, Any]:
    """One row: what was asked for and what was measured (`None` where it was not run)."""
    model, parameters = zoo.parse_spec(f"{name}@{size}")
    on_paper = size == "paper"
    factory = zoo.factory(f"{name}@{size}", **({"device": "meta"} if on_paper else {}))
    state = find_state(factory()[0])
    (network,), (optimizer,) = state.modules.values(), state.optimizers.values()
    row = {
        "name": name,
        "size": size,
        "summary": model.summary,
        "options": {k: v for k, v in parameters.items() if k not in {"seed", "device"}},
        **configuration(parameters),
        "optimizer": type(optimizer).__name__,
        "parameters": sum(p.numel() for p in network.parameters()),
        "persistent_bytes": None,
        "peak_bytes": None,
        "step_s": None,
    }
    if not on_paper:
        measured = contestants.measure([contestants.eager_contestant(factory, 0)], repeats=2)["eager"]
        row |= {
            "persistent_bytes": measured.memory.persistent_bytes,
            "peak_bytes": measured.memory.measured_peak_bytes,
            "step_s": round(min(measured.times.wall_s), 4),
        }
    return row


def as_cell(row: dict[str, Any]) -> str:
    """What a model is at one size."""
    millions = f"{row['parameters'] / 1e6:,.1f} M"
    return f"{row['layers']}\u00d7{row['width']}, {row['batch']}\u00d7{row['extent']}, {millions}"


def markdown(rows: list[dict[str, Any]]) -> str:
    """The whole page."""
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        small, paper = (row for row in rows if row["name"] == name and row["size"] != "tiny")
        options = " ".join(f"`{key}`" for key in paper["options"] if key not in COMMON_OPTIONS)
        cells = (
            paper["summary"],
            as_cell(small),
            f"{small['peak_bytes'] / MIB:.0f} MiB",
            as_cell(paper),
            options,
        )
        lines.append(f"| `{name}`: " + " | ".join(cells) + " |")
    return INTRODUCTION + TABLE + "\n".join(lines) + "\n"


def machine_facts() -> dict[str, Any]:
    return machine() | versions() | {"threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the page and the JSON as well")
    parser.add_argument("--models", nargs="*", default=zoo.names(), choices=zoo.names(), help="only these")
    arguments = parser.parse_args()
    if arguments.write and set(arguments.models) != set(zoo.names()):
        parser.error("--write needs all models: a page of some of them would hide the others")
    torch.set_num_threads(1)
    facts = machine_facts()
    rows = [measure(name, size) for size in zoo.SIZES for name in arguments.models]
    page = markdown(rows)
    print(page)
    if arguments.write:
        result = {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": facts,
            "seed": 0,
            "timed_steps": 2,
            "rows": rows,
        }
        (ROOT / "benchmarks/results/zoo_table.json").write_text(json.dumps(result, indent=1) + "\n")
        (ROOT / "docs/reference/zoo.md").write_text(page)


if __name__ == "__main__":
    main()
