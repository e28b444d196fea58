"""Ours against PyTorch's min-cut with the same kernels: `python benchmarks/backend_min_cut.py [NAME ...]`.

Each model runs forward and backward on ATen's kernels, boxed alike: under PyTorch's partitioner at ten values of
`activation_memory_budget`, and under the `neaptide` backend with the peak of each of these as its budget, and at `min`. Peaks
are counted by the allocator's events and include parameters; a time is the median over rounds in turns, as a ratio of eager's
processor time. The bars: at each peak that min-cut reaches, ours takes at most its time; our lowest peak is at most .85 of its
lowest. Each model has a process of its own, and each row is kept as soon as it is there.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Final

NAME: Final = "backend_min_cut"
SEED: Final = 0
ROUNDS: Final = 9
BUDGETS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
TIME_LIMIT_S: Final = 8.0
SIZES: Final[dict[str, tuple[dict[str, Any], dict[str, int]]]] = {
    # What is larger than in `backend_cases`, and the batch.
    "gpt2": ({"vocab_size": 2000, "n_embd": 128, "n_layer": 4}, {"batch": 4, "length": 64}),
    "llama": (
        {"vocab_size": 2000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4},
        {"batch": 4, "length": 64},
    ),
    "bert": (
        {"vocab_size": 2000, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4},
        {"batch": 4, "length": 64},
    ),
    "opt": (
        {
            "vocab_size": 2000,
            "hidden_size": 128,
            "ffn_dim": 512,
            "num_hidden_layers": 4,
            "word_embed_proj_dim": 128,
        },
        {"batch": 4, "length": 64},
    ),
    "vit": (
        {"hidden_size": 96, "intermediate_size": 384, "num_hidden_layers": 6, "image_size": 64},
        {"batch": 8, "pixels": 64},
    ),
    "resnet": (
        {"embedding_size": 32, "hidden_sizes": [64, 128, 128, 256], "depths": [1, 1, 1, 1]},
        {"batch": 8, "pixels": 64},
    ),
    "convnext": ({"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]}, {"batch": 8, "pixels": 64}),
    "swin": ({"embed_dim": 48, "depths": [2, 2], "image_size": 64}, {"batch": 8, "pixels": 64}),
}
_VARIANTS: Final = 64


class Variant:
    """A copy of a model under one way of compiling it, ready to run.

    Dynamo keeps what it compiled for all of them: after a reset, a variant would be compiled anew while it is measured.
    """

    def __init__(self, model: Any, batch: Any, backend: Any) -> None:
        import torch

        torch._dynamo.config.recompile_limit = _VARIANTS  # noqa: SLF001 - all have the code of one class
        self.model, self.batch = copy.deepcopy(model), batch
        self.call = (
            self.model if backend is None else torch.compile(self.model, backend=backend, dynamic=False)
        )
        self.times: list[float] = []
        for _ in range(2):
            self.run()

    def run(self) -> None:
        """A forward and a backward pass."""
        self.call(*self.batch).backward()
        for parameter in self.model.parameters():
            parameter.grad = None

    def timed(self) -> None:
        """The same, with its processor time."""
        began = time.process_time()
        self.run()
        self.times.append(time.process_time() - began)

    def peak(self) -> int:
        """Highest bytes, those of the caller included."""
        from neaptide.cost.cards.allocator_events import record
        from neaptide.runtime.measuring.meter import storage_bytes

        persistent = [*self.model.parameters(), *self.model.buffers(), *self.batch]
        return record(self.run, persistent=persistent).peak_bytes(storage_bytes(persistent))


def min_cut(budget: float) -> Any:
    """A backend with PyTorch's partitioner under a value of `activation_memory_budget`, on boxed programs of ATen."""
    import torch._functorch.config as settings
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from neaptide.integrations.torch_compile.programs.boxed import boxed

    def partition(*args: Any, **kwargs: Any) -> Any:
        with settings.patch(activation_memory_budget=budget):
            return min_cut_rematerialization_partition(*args, **kwargs)

    def compiled(module: Any, _inputs: Any) -> Any:
        return boxed(module)

    return aot_autograd(fw_compiler=compiled, bw_compiler=compiled, partition_fn=partition)


def ours(peak: int | str) -> Any:
    """The `neaptide` backend under a budget of bytes."""
    from neaptide.integrations.torch_compile import neaptide

    options = {"peak": peak, "time_limit": TIME_LIMIT_S, "on_infeasible": "best"}
    return lambda module, inputs: neaptide(module, inputs, options=options)


def measure(name: str) -> dict[str, Any]:
    """One model, in this process."""
    import dataclasses

    import torch

    from backend_cases import case

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(SEED)
    larger, sizes = SIZES[name]
    chosen = case(name)
    model, batch = dataclasses.replace(chosen, given={**chosen.given, **larger}).build(**sizes)
    # No random numbers: the masks of dropout would be saved by one and drawn anew by the other.
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.train()
    variants: dict[str, Variant] = {"eager": Variant(model, batch, None)}
    failed = {}
    for budget in BUDGETS:
        try:
            variants[f"min-cut {budget:g}"] = Variant(model, batch, min_cut(budget))
        except Exception as error:  # noqa: BLE001 - the peer may fail; the record says how
            failed[f"min-cut {budget:g}"] = str(error).strip().splitlines()[0][:200]
    peaks = {key: one.peak() for key, one in variants.items()}
    for peak in sorted({peak for key, peak in peaks.items() if key.startswith("min-cut")}):
        variants[f"ours {peak}"] = Variant(model, batch, ours(f"{peak}B"))
    variants["ours min"] = Variant(model, batch, ours("min"))
    peaks |= {key: one.peak() for key, one in variants.items() if key not in peaks}
    for _ in range(ROUNDS):
        for one in variants.values():
            one.timed()
    base = statistics.median(variants["eager"].times)
    ratios = {key: statistics.median(one.times) / base for key, one in variants.items()}
    return {"name": name, "peaks": peaks, "time_ratios": ratios, "failed": failed, **held(peaks, ratios)}


def held(peaks: dict[str, int], ratios: dict[str, float]) -> dict[str, Any]:
    """What the bars say: peaks at which ours is slower, or not reached, and the ratio of the lowest peaks."""
    theirs = {key: peak for key, peak in peaks.items() if key.startswith("min-cut")}
    slower = {}
    for key, peak in theirs.items():
        mine = f"ours {peak}"
        best = min(ratios[other] for other, at in theirs.items() if at == peak)
        if peaks[mine] > peak or ratios[mine] > best:
            slower[key] = [peaks[mine] / peak, ratios[mine], best]
    lowest = min(peak for key, peak in peaks.items() if key.startswith("ours")) / min(theirs.values())
    return {"slower_or_higher": slower, "lowest_peak_ratio": lowest}


def main() -> int:
    """Measure, and write each row into the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", action="store_true", help="measure one model here, as JSON")
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(measure(asked.names[0])))
        return 0
    from backend_cases import keep

    for name in asked.names or SIZES:
        command = [sys.executable, str(Path(__file__).resolve()), "--part", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            print(name, done.stderr[-2000:])
            return 1
        row = json.loads(lines[-1])
        keep(NAME, row, repeats=ROUNDS, seed=SEED, time_limit_s=TIME_LIMIT_S, models=len(SIZES))
        print(
            f"{name}: lowest peak {row['lowest_peak_ratio']:.3f} of min-cut's; slower {row['slower_or_higher']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
