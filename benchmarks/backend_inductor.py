"""Plans on fused kernels against Inductor itself: `python benchmarks/backend_inductor.py [NAME ...] [--jobs N]`.

Each model runs forward and backward by Inductor's kernels: with its own partition, under its `activation_memory_budget`s, and
under the `neaptide` backend with `lowering="inductor"` at 100, 80 and 60 % of the transient peak of its own partition (what is
above parameters, buffers and the batch). Each variant has a process of its own, and the processes take turns when they are
timed. Peaks are counted by the allocator's events. The bars: at 100 % at most 1.02x its time and at most its peak; 80 % and
60 % are reached at 1.12x and 1.30x its time at most, where its own budgets do not reach or are slower; predicted peaks are
within 2 % of measured ones. Rows are kept one by one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, locked, recorded, save

NAME: Final = "backend_inductor"
SEED: Final = 0
ROUNDS: Final = 15
CALLS: Final = 3
TIME_LIMIT_S: Final = 20.0
BUDGETS: Final = ("0.5", "0.2", "0")
SHARES: Final = (100, 80, 60)
SIZES: Final[dict[str, tuple[dict[str, Any], dict[str, int]]]] = {
    # What is larger than in `backend_cases`, and the batch.
    "gpt2": ({"vocab_size": 1000, "n_embd": 64}, {"batch": 4, "length": 64}),
    "llama": ({"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128}, {"batch": 4, "length": 64}),
    "bert": ({"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 256}, {"batch": 4, "length": 64}),
    "opt": (
        {"vocab_size": 1000, "hidden_size": 64, "ffn_dim": 256, "word_embed_proj_dim": 64},
        {"batch": 4, "length": 64},
    ),
    "vit": (
        {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "image_size": 64},
        {"batch": 8, "pixels": 64},
    ),
    "resnet": ({}, {"batch": 8, "pixels": 64}),
    "convnext": ({}, {"batch": 8, "pixels": 64}),
    "swin": ({}, {"batch": 8}),
}
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


class Variant:
    """A process with a model under one way of compiling it. It runs whenever it is asked to."""

    def __init__(self, model: str, variant: str, peak: int = 0) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--part", model, variant, str(peak)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        self.name = variant
        self.times: list[float] = []
        self.facts = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"failure": "the process ended"}
        return found

    def timed(self) -> None:
        """A few calls, with the median of their processor times."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        self.times.append(self._answer()["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def part(name: str, variant: str, peak: int) -> None:
    """One variant, in this process: what it takes, then its time whenever a line comes."""
    import torch

    from backend_cases import case
    from neaptide.cost.cards.allocator_events import record
    from neaptide.runtime.measuring.meter import storage_bytes

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(SEED)
    larger, sizes = SIZES[name]
    chosen = case(name)
    model, batch = dataclasses.replace(chosen, given={**chosen.given, **larger}).build(**sizes)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # the same numbers in all variants
    model.train()
    call, told = compiled(model, variant, peak)

    def run() -> None:
        call(*batch).backward()
        for parameter in model.parameters():
            parameter.grad = None

    began = time.perf_counter()
    run()
    compile_s = time.perf_counter() - began
    run()
    persistent = [*model.parameters(), *model.buffers(), *batch]
    held = storage_bytes(persistent)
    measured = record(run, persistent=persistent).peak_bytes(held)
    facts = {"measured_peak_bytes": measured, "persistent_bytes": held, "compile_s": compile_s, **told()}
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(CALLS):
            began = time.process_time()
            run()
            times.append(time.process_time() - began)
        print(json.dumps({"seconds": statistics.median(times)}), flush=True)


def compiled(model: Any, variant: str, peak: int) -> tuple[Any, Any]:
    """The model as a variant runs it, and what tells what was planned."""
    import torch
    import torch._functorch.config as settings

    if variant == "eager":
        return model, dict
    if variant.startswith("ours"):
        from neaptide.integrations.torch_compile import ledgers, neaptide

        options = {
            "lowering": "inductor",
            "peak": f"{peak}B",
            "time_limit": TIME_LIMIT_S,
            "on_infeasible": "best",
        }

        def told() -> dict[str, Any]:
            (piece,) = ledgers()[-1].pieces.values()
            return {"predicted_peak_bytes": piece.predicted_peak_bytes, "plan": str(piece)}

        return torch.compile(model, backend=neaptide, options=options, dynamic=False), told
    if variant.startswith("budget"):
        settings.activation_memory_budget = float(variant.partition(" ")[2])
    return torch.compile(model, dynamic=False), dict


def measure(name: str, jobs: int) -> dict[str, Any]:
    """All variants of a model."""
    own = Variant(name, "inductor")
    peak, held = own.facts["measured_peak_bytes"], own.facts["persistent_bytes"]
    asked = [("eager", 0), *((f"budget {budget}", 0) for budget in BUDGETS)]
    asked += [(f"ours {share}", held + (peak - held) * share // 100) for share in SHARES]
    with ThreadPoolExecutor(jobs) as pool:
        variants = [own, *pool.map(lambda one: Variant(name, *one), asked)]
    failed = {one.name: one.facts["failure"] for one in variants if "failure" in one.facts}
    variants = [one for one in variants if one.name not in failed]
    for _ in range(ROUNDS):
        for one in variants:
            one.timed()
    for one in variants:
        one.close()
    base = statistics.median(own.times)
    facts = {
        one.name: {
            **one.facts,
            "time_ratio": statistics.median(one.times) / base,
            "transient_share": (one.facts["measured_peak_bytes"] - held) / (peak - held),
        }
        for one in variants
    }
    return {"name": name, "variants": facts, "failed": failed}


def keep(row: dict[str, Any]) -> None:
    """Put a row into the record; rows of other models stay."""
    with locked(RESULTS):
        path = RESULTS / f"{NAME}.json"
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        rows = [*(one for one in rows if one["name"] != row["name"]), row]
        save(NAME, recorded(rows, seed=SEED, repeats=ROUNDS, time_limit_s=TIME_LIMIT_S))


def main() -> int:
    """Measure, and keep each row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1, help="variants that are compiled at the same time")
    parser.add_argument("--part", action="store_true", help="one variant: MODEL VARIANT BYTES")
    asked = parser.parse_args()
    if asked.part:
        part(asked.names[0], asked.names[1], int(asked.names[2]))
        return 0
    for name in asked.names or SIZES:
        row = measure(name, asked.jobs)
        keep(row)
        for variant, facts in row["variants"].items():
            print(
                f"{name:10} {variant:12} {facts['transient_share']:.3f} of the transient peak, "
                f"{facts['time_ratio']:.3f} of the time, compiled in {facts['compile_s']:.0f} s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
