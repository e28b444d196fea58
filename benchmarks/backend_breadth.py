"""Does the `torch.compile` backend run what people train: `python benchmarks/backend_breadth.py [NAME ...]`.

24 architectures of transformers, tiny: in training at the lowest peak, in training with a dynamic batch, and both in inference.
Losses, gradients and buffers are compared with eager's, bit by bit. Where they differ, those of `backend="aot_eager"` must differ
as well. A process measures six of them. Rows are kept one by one: an architecture without one has not been measured.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Final

NAME: Final = "backend_breadth"
SEED: Final = 0
TIME_LIMIT_S: Final = 1.0
_TOGETHER: Final = 6


def measure(name: str) -> dict[str, Any]:
    """One architecture, in this process."""
    import torch

    from backend_cases import case

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    row: dict[str, Any] = {"name": name}
    torch.manual_seed(SEED)
    model, batch = case(name).build()
    for key, options, is_dynamic, compared in (
        ("train min", {"peak": "min"}, False, _compared),
        ("train dynamic", {}, True, _compared),
        ("eval", {}, False, _inferred),
        ("eval dynamic", {}, True, _inferred),
    ):
        model.train(compared is _compared)
        given = {**options, "time_limit": TIME_LIMIT_S}
        row[key] = _tried(compared, model, batch, "neaptide", given, is_dynamic)
        if row[key] != "equal":
            row[f"{key}, aot_eager"] = _tried(compared, model, batch, "aot_eager", None, is_dynamic)
    return row


def _tried(run: Any, *args: Any) -> str:
    try:
        return run(*args)
    except Exception as error:  # noqa: BLE001 - a row says what failed
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]


def _compiled(model: Any, program: str, options: Any, is_dynamic: bool) -> Any:
    import torch

    from neaptide.integrations.torch_compile import neaptide

    torch._dynamo.reset()  # noqa: SLF001
    if program == "aot_eager":
        return torch.compile(model, backend=program, dynamic=None if is_dynamic else False)
    return torch.compile(
        model,
        backend=lambda module, inputs: neaptide(module, inputs, options=options),
        dynamic=None if is_dynamic else False,
    )


def _batches(batch: Any, is_dynamic: bool) -> list[Any]:
    """Of the size itself, and of a batch with one more sample where that dim is dynamic."""
    import torch

    if not is_dynamic:
        return [batch, batch]
    larger = tuple(torch.cat([one, one[:1]]) for one in batch)
    for one in (*batch, *larger):
        torch._dynamo.mark_dynamic(one, 0)  # noqa: SLF001
    return [batch, larger]


def _compared(model: Any, batch: Any, program: str, options: Any, is_dynamic: bool) -> str:
    """`equal`, or the largest difference of losses, gradients and buffers, of the largest magnitude there."""
    import torch

    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    step = _compiled(ours, program, options, is_dynamic)
    found = []
    for one, call in ((ours, step), (eager, eager)):
        torch.manual_seed(SEED)
        losses = []
        for given in _batches(batch, is_dynamic):
            loss = call(*given)
            loss.backward()
            losses.append(loss.detach())
        gradients = [p.grad for p in one.parameters() if p.grad is not None]
        found.append([*losses, *gradients, *one.buffers()])
    return _difference(*found)


def _inferred(model: Any, batch: Any, program: str, options: Any, is_dynamic: bool) -> str:
    import torch

    call = _compiled(model, program, options, is_dynamic)
    with torch.no_grad():
        given = _batches(batch, is_dynamic)
        return _difference([call(*one) for one in given], [model(*one) for one in given])


def _difference(ours: list[Any], eagers: list[Any]) -> str:
    import torch

    if len(ours) != len(eagers):
        return f"{len(ours)} results of {len(eagers)}"
    pairs = list(zip(ours, eagers, strict=True))
    if all(torch.equal(mine, other) for mine, other in pairs):
        return "equal"
    worst = max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())
    return f"differs by {worst:.1e}"


def is_held(row: dict[str, Any]) -> bool:
    """Whether all runs, and has eager's bits where `aot_eager` has them."""
    for key, found in row.items():
        if key == "name" or key.endswith("aot_eager") or found == "equal":
            continue
        if not (found.startswith("differs") and row.get(f"{key}, aot_eager", "").startswith("differs")):
            return False
    return True


def main() -> int:
    """Measure, and write each row into the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--part", action="store_true", help="measure some architectures here, one line of JSON each"
    )
    asked = parser.parse_args()
    if asked.part:
        for name in asked.names:
            row = measure(name)
            print(json.dumps(row | {"held": is_held(row)}), flush=True)
        return 0
    from backend_cases import CASES, keep

    held = 0
    names = asked.names or [one.name for one in CASES]
    for some in (names[at : at + _TOGETHER] for at in range(0, len(names), _TOGETHER)):
        command = [sys.executable, str(Path(__file__).resolve()), "--part", *some]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as part:
            for line in part.stdout or ():
                row = json.loads(line)
                held += row["held"]
                keep(NAME, row, repeats=1, seed=SEED, time_limit_s=TIME_LIMIT_S, architectures=len(CASES))
                print(line, end="", flush=True)
    print(f"{held} of {len(names)} held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
