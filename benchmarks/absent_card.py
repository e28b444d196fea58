"""Captures for a card that is not there: `python benchmarks/absent_card.py [--only captures] [--models gpt2,vit]`.

`captures`: every model of the zoo in float32 and under bf16 autocast, with dropout where it has some: operations,
unknown ones, attention of forward and backward, and processor time beside a capture of the same model on the CPU, in turns.

`published`: peaks that others measured with `torch.cuda.max_memory_allocated` and published with batch and length, beside
what is predicted. They are of forward and backward of the logits' sum in float16, without an optimizer, by the script
that the threads link; whatever it does between two steps is not known beyond that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench_record import recorded, save, say, table

SEED = 0
DEVICE = "rtx4090"
DROPOUT = 0.1
_MB = 1e6
_ALBERT = "github.com/huggingface/transformers/pull/32092"
_OPT = "github.com/huggingface/transformers/pull/33298"
_NEOX = "github.com/huggingface/transformers/pull/31031"


@dataclass(frozen=True, slots=True)
class Published:
    """A peak in MB of 10**6 bytes; `attention` is what transformers calls the implementation."""

    model: str
    batch: int
    length: int
    attention: str
    peak_mb: float
    source: str


PUBLISHED = (
    *(
        Published("albert-base-v2", batch, length, attention, peak, _ALBERT)
        for batch, length, eager, sdpa in (
            (1, 256, 234.781, 217.758),
            (1, 512, 454.029, 378.171),
            (2, 512, 868.131, 717.332),
            (4, 512, 1664.025, 1363.268),
        )
        for attention, peak in (("eager", eager), ("sdpa", sdpa))
    ),
    Published("opt-350m", 1, 128, "sdpa", 1474.32, _OPT),
    Published("opt-350m", 1, 256, "sdpa", 1499.49, _OPT),
    Published("opt-350m", 1, 512, "sdpa", 1551.35, _OPT),
    Published("opt-350m", 1, 1024, "sdpa", 1698.35, _OPT),
    Published("pythia-410m", 1, 128, "sdpa", 1789.95, _NEOX),
    Published("pythia-410m", 1, 256, "sdpa", 1844.84, _NEOX),
)


def model_of(row: Published) -> Any:
    """The published model without weights, in half precision."""
    import torch
    import transformers as hf

    kind, config = {
        "albert-base-v2": (
            hf.AlbertForMaskedLM,
            lambda: hf.AlbertConfig(
                hidden_size=768,
                num_attention_heads=12,
                intermediate_size=3072,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation=row.attention,
            ),
        ),
        "opt-350m": (
            hf.OPTForCausalLM,
            lambda: hf.OPTConfig(
                hidden_size=1024,
                num_hidden_layers=24,
                ffn_dim=4096,
                num_attention_heads=16,
                word_embed_proj_dim=512,
                do_layer_norm_before=False,
                attn_implementation=row.attention,
            ),
        ),
        "pythia-410m": (
            hf.GPTNeoXForCausalLM,
            lambda: hf.GPTNeoXConfig(
                vocab_size=50304,
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
                attn_implementation=row.attention,
            ),
        ),
    }[row.model]
    with torch.device("meta"):
        return kind(config()).to(torch.float16).train()


def predicted_mb(row: Published) -> float:
    """The predicted peak of forward and backward, as the allocator counts."""
    import torch

    from neaptide.policy.prepared_step import prepare
    from neaptide.report.allocated import allocated_peak

    model = model_of(row)
    further = {} if row.model == "albert-base-v2" else {"use_cache": False}

    def step(tokens: Any) -> Any:
        model(input_ids=tokens, **further).logits.sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = None
        return gradients

    tokens = torch.zeros((row.batch, row.length), dtype=torch.int64)
    # The loop of the script holds the outputs of one step until those of the next are there.
    held = 2 * row.batch * row.length * model.config.vocab_size
    return (allocated_peak(prepare(step, (tokens,), device=DEVICE)).nbytes + held) / _MB


def published(models: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Each published peak beside the prediction."""
    for row in PUBLISHED:
        if models and row.model not in models:
            continue
        found = predicted_mb(row)
        yield {
            "part": "published",
            "model": row.model,
            "batch": row.batch,
            "length": row.length,
            "attention": row.attention,
            "measured_peak_mb": row.peak_mb,
            "predicted_peak_mb": round(found, 1),
            "ratio": round(found / row.peak_mb, 3),
            "source": row.source,
        }


def captures(models: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Each model in two precisions."""
    from neaptide import zoo

    capture("mlp@tiny")  # what torch imports at the first capture counts for none
    for name in models or zoo.names():
        sizes = zoo.get(name).sizes["tiny"]
        dropout = f",dropout={DROPOUT}" if "dropout" in sizes else ""
        for precision in ("fp32", "bf16"):
            yield capture(f"{name}@tiny,precision={precision}{dropout}")


def capture(spec: str) -> dict[str, Any]:
    """One capture on the CPU, and one on the card that is not there."""
    from neaptide import zoo
    from neaptide.frontends.card.pretended import built_for, card_named
    from neaptide.frontends.torch_step import capture_step

    card = card_named(DEVICE)

    def absent() -> Any:
        with built_for(card):
            step, batch = zoo.factory(spec, device="cuda")()
        return timed(lambda: capture_step(step, (batch,), card=card))

    def here() -> Any:
        step, batch = zoo.factory(spec)()
        return timed(lambda: capture_step(step, (batch,)))

    (_, on_cpu), (program, on_card) = here(), absent()
    steady = program.steady
    found = Counter(node.op for node in steady.graph.nodes)
    return {
        "part": "captures",
        "spec": spec,
        "operations": len(steady.graph.nodes),
        "unknown": list(steady.unknown_ops),
        "attention": {op: n for op, n in sorted(found.items()) if "_attention" in op},
        "cpu_seconds": round(on_cpu, 3),
        "card_seconds": round(on_card, 3),
        "ratio": round(on_card / on_cpu, 3),
    }


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its processor time."""
    began = time.process_time()
    found = run()
    return found, time.process_time() - began


def main() -> int:
    """Run, say and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("captures", "published"))
    parser.add_argument("--models", default="", help="names with commas between them")
    asked = parser.parse_args()
    models = tuple(filter(None, asked.models.split(",")))
    parts = {"captures": lambda: captures(models), "published": lambda: published(models)}
    for name in [asked.only] if asked.only else list(parts):
        rows = []
        for row in parts[name]():
            rows.append(row)
            say(str({key: value for key, value in row.items() if key != "source"}))
            save(f"absent_card_{name}", recorded(rows, seed=SEED, repeats=1, device=DEVICE))
        keys = [key for key in rows[0] if key not in {"part", "source", "attention", "unknown"}]
        print(table(keys, [[str(row[key]) for key in keys] for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
