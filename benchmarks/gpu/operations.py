"""Operations of steps on a real card and on one that is pretended: `python benchmarks/gpu/operations.py SPEC... -o FILE`.

For each model of the zoo the captured program is listed: operation, shapes, dtypes, strides and storages of what it
gives. With a card there are three lists: of a capture on it (`real`), of a capture for its preset as if it were not there
(`absent`), and of what eager really dispatches up to the update (`eager`). Without one there is `absent` alone.
`--against FILE` compares with the lists of another run, made elsewhere: its `real` where it has one.
Exit code 1 where lists differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench_record import machine, versions
from neaptide import zoo
from neaptide.cost.presets import preset_of_card
from neaptide.errors import NeaptideError
from neaptide.frontends.card.pretended import Card, built_for, card_named
from neaptide.frontends.torch_step import capture_step

SPECS = (
    *("mlp@tiny", "gpt2@tiny", "gpt2@tiny,precision=bf16,dropout=0.1", "llama@tiny,precision=bf16"),
    *("bert@tiny,precision=bf16", "vit@tiny", "vit@tiny,precision=bf16", "resnet50@tiny"),
    *(
        "resnet50@tiny,precision=bf16",
        "unet@tiny",
        "btlm@tiny,precision=bf16",
        "lstm@tiny",
        "lstm@tiny,precision=bf16",
    ),
)
_SHOWN = 8  # differences of a model
_CHOSEN = ("attention", "batch_norm", "rnn", "layer_norm", "convolution")

Row = list[Any]
"""Operation, then for each result shape, dtype, strides, device and number of the storage."""


def preset() -> str:
    """The preset that is most like the card of this machine; `rtx4090` where none is there, or it has none."""
    if not torch.cuda.is_available():
        return "rtx4090"
    found = preset_of_card(torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory)
    return "rtx4090" if found is None else found.name


def captured(spec: str, card: Card | None) -> tuple[list[Row], float]:
    """The steady program of a capture, and its seconds; for a card that is pretended, or on the real one."""
    with built_for(card):
        step, batch = zoo.factory(spec, device="cuda")()
    began = time.perf_counter()
    graph = capture_step(step, (batch,), card=card).steady.graph
    seconds = time.perf_counter() - began
    numbers: dict[int, int] = {}
    rows = []
    for node in graph.nodes:
        row: Row = [str(node.op)]
        for number in node.outputs:
            value = graph.values[number]
            storage = None if value.storage is None else numbers.setdefault(value.storage, len(numbers))
            device = None if value.storage is None else graph.storages[value.storage].device
            row.append(
                [list(map(str, value.shape)), value.dtype, list(map(str, value.strides)), device, storage]
            )
        rows.append(row)
    return rows, seconds


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, (tuple, list)) else (result,)
        row: Row = [str(func)]
        for one in results:
            if isinstance(one, torch.Tensor):
                shape, strides = list(map(str, one.shape)), list(map(str, one.stride()))
                row.append(
                    [shape, str(one.dtype).removeprefix("torch."), strides, str(one.device), one.nbytes]
                )
        self.rows.append(row)
        return result


def eager(spec: str) -> list[Row]:
    """What the second step really dispatches."""
    step, batch = zoo.factory(spec, device="cuda")()
    step(batch)
    with _Seen() as seen:
        step(batch)
    torch.cuda.synchronize()
    return seen.rows


def chosen(rows: Sequence[Row]) -> dict[str, int]:
    """How often each kernel that PyTorch chooses for a card is called."""
    found = Counter(row[0] for row in rows if any(word in row[0] for word in _CHOSEN))
    return dict(sorted(found.items()))


def difference(one: Sequence[Row], other: Sequence[Row]) -> dict[str, Any]:
    """Where two lists part: operations by count, and the first rows that differ."""
    counts, others = Counter(row[0] for row in one), Counter(row[0] for row in other)
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    only = {"only in the first": dict(counts - others), "only in the second": dict(others - counts)}
    return {**only, "rows that differ": len(pairs), "first": pairs[:_SHOWN]}


def compared(one: Sequence[Row], other: Sequence[Row]) -> dict[str, Any] | None:
    """None where two lists are the same."""
    return None if list(one) == list(other) else difference(one, other)


def main(given: Sequence[str] | None = None) -> int:
    """List, compare, say and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("specs", nargs="*", default=list(SPECS), metavar="SPEC")
    parser.add_argument("--device", default=preset(), help="preset that is pretended")
    parser.add_argument("--against", type=Path, help="lists of another run")
    parser.add_argument("-o", "--output", type=Path, default=Path("operations.json"))
    asked = parser.parse_args(given)
    has_card = torch.cuda.is_available()
    before = json.loads(asked.against.read_text(encoding="utf-8"))["lists"] if asked.against else {}
    lists: dict[str, Any] = {}
    differs = False
    for spec in asked.specs or SPECS:
        found = _lists(spec, asked.device, has_card)
        lists[spec] = found
        reference = (
            found.get("real") or before.get(spec, {}).get("real") or before.get(spec, {}).get("absent")
        )
        if reference is not None and "absent" in found:
            found["difference"] = compared(reference, found["absent"])
            differs = differs or found["difference"] is not None
        print(json.dumps({"spec": spec, **_told(found)}), flush=True)
    name = torch.cuda.get_device_name() if has_card else None
    told = {
        "card": name,
        "preset": asked.device,
        "machine": machine(),
        "versions": versions(),
        "lists": lists,
    }
    asked.output.write_text(json.dumps(told) + "\n", encoding="utf-8")
    return 1 if differs else 0


def _lists(spec: str, device: str, has_card: bool) -> dict[str, Any]:
    makers: dict[str, Callable[[], Any]] = {"absent": lambda: captured(spec, card_named(device))}
    if has_card:
        makers = {"eager": lambda: (eager(spec), 0.0), "real": lambda: captured(spec, None), **makers}
    found: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            found[name], found[f"{name} seconds"] = make()
        except (NeaptideError, RuntimeError) as error:
            found[f"{name} failed"] = f"{type(error).__name__}: {error}"[:600]
    return found


def _told(found: dict[str, Any]) -> dict[str, Any]:
    lists = {name: rows for name, rows in found.items() if isinstance(rows, list)}
    return {
        **{f"{name} operations": len(rows) for name, rows in lists.items()},
        **{f"{name} chosen": chosen(rows) for name, rows in lists.items()},
        **{name: value for name, value in found.items() if not isinstance(value, list)},
    }


if __name__ == "__main__":
    sys.exit(main())
