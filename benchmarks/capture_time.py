"""Processor time of a capture: `python benchmarks/capture_time.py [--cases gru] [--against OTHER/src]`.

Each capture is the first of a fresh process, so it pays for what torch imports and remembers only then, too. With
`--against`, the neaptide of another source tree takes turns, so that a slow minute hits both, and what each captures
is compared by the fingerprints of its programs. One thread; printed are medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import RESULTS, recorded, run_part, save, say, table

SEED = 0
REPEATS = 3
TIMEOUT_S = 600.0
COLUMNS = ("case", "programs", "nodes", "CPU (s)", "against (s)", "ratio", "same programs")

Made = tuple[Callable[..., Any], Any]


def zoo_case(spec: str) -> Made:
    """A model of the zoo."""
    from neaptide import zoo

    made: Made = zoo.factory(spec)()
    return made


def gru(steps: int = 24, hidden: int = 64) -> Made:
    """A GRU cell in a Python loop, with Adam."""
    import torch

    class Unrolled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(32, hidden)
            self.head = torch.nn.Linear(hidden, 10)

        def forward(self, sequence: torch.Tensor) -> torch.Tensor:
            state = sequence.new_zeros(sequence.shape[1], hidden)
            outputs = []
            for part in sequence:
                state = self.cell(part, state)
                outputs.append(self.head(state))
            return torch.stack(outputs)

    model = Unrolled()
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(steps, 16, 32)


def language_model(name: str, **sizes: Any) -> Made:
    """A causal model of transformers with few layers, with AdamW."""
    import torch
    import transformers

    config = getattr(transformers, f"{name}Config")(vocab_size=64, hidden_size=32, **sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).train()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(64, (2, 16))

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, {"input_ids": tokens, "labels": tokens.clone()}


LLAMA = {"intermediate_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "num_key_value_heads": 2}
CASES: dict[str, Callable[[], Made]] = {
    "gpt2@small": lambda: zoo_case("gpt2@small"),
    "resnet50@small": lambda: zoo_case("resnet50@small"),
    "gru, 24 steps": gru,
    "mamba, 2 layers": lambda: language_model("Mamba", num_hidden_layers=2, state_size=8),
    "rwkv, 2 layers": lambda: language_model(
        "Rwkv", num_hidden_layers=2, attention_hidden_size=32, context_length=16
    ),
    "llama, 12 layers": lambda: language_model("Llama", **LLAMA),
}


def measure(case: str, source: str) -> dict[str, Any]:
    """The first capture of this process, by the neaptide in `source` where that is given."""
    if source:
        sys.path.insert(0, source)
    import torch

    from neaptide.frontends.torch_step import capture_step
    from neaptide.ir.fingerprint import fingerprint

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    step, batch = CASES[case]()
    began = time.process_time()
    captured = capture_step(step, (batch,))
    seconds = time.process_time() - began
    graphs = [program.graph for program in captured.programs]
    return {
        "cpu_seconds": seconds,
        "nodes": [len(graph.nodes) for graph in graphs],
        "fingerprints": [fingerprint(graph) for graph in graphs],
    }


def collect(cases: list[str], *, repeats: int, against: str) -> dict[str, Any]:
    """All rows; a case that fails is a row with its `failure`."""
    rows = []
    for case in cases:
        runs: dict[str, list[dict[str, Any]]] = {"": []} | ({against: []} if against else {})
        for _ in range(repeats):
            for source, found in runs.items():
                say(f"{case} {source}")
                options = ("--one", case, "--source", source)
                found.append(run_part("capture_time.py", *options, timeout_s=TIMEOUT_S))
        rows.append({"case": case} | row(runs[""], runs.get(against) if against else None))
    return recorded(rows, seed=SEED, repeats=repeats)


def row(runs: list[dict[str, Any]], others: list[dict[str, Any]] | None) -> dict[str, Any]:
    """What is kept of the runs of one case, and of those of the other source tree."""
    failures = [run["failure"] for run in (*runs, *(others or ())) if "failure" in run]
    if failures:
        return {"failure": failures[0]}
    seconds = [run["cpu_seconds"] for run in runs]
    kept = {"cpu_seconds": statistics.median(seconds), "nodes": runs[0]["nodes"]}
    if others is None:
        return kept
    before = [run["cpu_seconds"] for run in others]
    return kept | {
        "against_cpu_seconds": statistics.median(before),
        "ratio": statistics.median(now / then for now, then in zip(seconds, before, strict=True)),
        "is_same": runs[0]["fingerprints"] == others[0]["fingerprints"],
    }


def text(result: dict[str, Any]) -> str:
    """The table, and below it what failed."""
    lines = []
    for found in result["rows"]:
        if "failure" in found:
            lines.append([found["case"], "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        beside = ["-", "-", "-"]
        if "ratio" in found:
            is_same = "yes" if found["is_same"] else "no"
            beside = [f"{found['against_cpu_seconds']:.2f}", f"{found['ratio']:.2f}", is_same]
        nodes = found["nodes"]
        lines.append(
            [found["case"], str(len(nodes)), str(sum(nodes)), f"{found['cpu_seconds']:.2f}", *beside]
        )
    failures = [
        f"{found['case']} failed: {found['failure']}" for found in result["rows"] if "failure" in found
    ]
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=REPEATS, help="processes a case")
    parser.add_argument("--against", default="", metavar="SRC", help="folder with another neaptide")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="CASE", help="measure one case here and print JSON")
    parser.add_argument("--source", default="", help="folder with the neaptide that is measured by --one")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.source)))
        return
    result = collect(asked.cases, repeats=asked.repeats, against=asked.against)
    print(text(result))
    save("capture_time", result, asked.output)


if __name__ == "__main__":
    main()
