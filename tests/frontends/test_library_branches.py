"""Libraries that take another branch when they see a trace take that of eager, or the report names the line."""

from __future__ import annotations

import sys
import sysconfig
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from frontends.steps import update
from neaptide.errors import StepMismatch
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_same_bits, joined, planned

transformers = pytest.importorskip("transformers")

_WIDTHS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
_TEXT = {**_WIDTHS, "vocab_size": 40, "max_position_embeddings": 16}


def bert():
    config = transformers.BertConfig(**_TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForMaskedLM(config)


def mistral():
    config = transformers.MistralConfig(**_TEXT, num_key_value_heads=1, sliding_window=64)
    return transformers.MistralForCausalLM(config)


def qwen():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_TEXT, num_key_value_heads=1))


def make_step(model):
    torch.manual_seed(3)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def step(ids, mask):
        return update(network(input_ids=ids, attention_mask=mask, labels=ids).loss, optimizer)

    return step


IDS = torch.randint(40, (2, 6), generator=torch.Generator().manual_seed(0))
ONES = torch.ones(2, 6, dtype=torch.int64)
PADDED = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize(
    "model", [bert, *(pytest.param(model, marks=pytest.mark.slow) for model in (mistral, qwen))]
)
def test_a_mask_of_ones_is_skipped_as_in_eager_and_another_mask_is_another_program(model):
    eager, step = make_step(model), planned(make_step(model), IDS, further=(ONES,), on_mismatch="replan")
    for mask in (ONES, PADDED, ONES, PADDED):
        assert step(IDS, mask) == eager(IDS, mask)
    assert step.counts.replans == 1


def test_a_mask_that_decides_otherwise_is_named():
    step = planned(make_step(bert), IDS, further=(PADDED,), on_mismatch="error")
    step(IDS, PADDED)
    with pytest.raises(StepMismatch) as caught:
        step(IDS, ONES)
    assert "branch" in caught.value.where


SOURCE = """
import torch

def is_tracing(x):
    from torch._subclasses.fake_tensor import FakeTensor
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or isinstance(x, FakeTensor)

def scaled(x, weights):
    if not is_tracing(weights) and bool((weights == 1).all()):
        return x * 1.25
    return x * 0.75 + weights.sum()

def clamped(x):
    if not is_tracing(x) and not torch.isfinite(x).all():
        return x.clamp(-1, 1)
    return x.tanh()
"""


@pytest.fixture
def library(monkeypatch):
    """A library of its own that asks whether it is traced."""
    file = Path(sysconfig.get_path("purelib")) / "asking" / "layers.py"
    module = types.ModuleType("asking")
    module.__file__ = str(file)
    exec(compile(SOURCE, str(file), "exec"), vars(module))  # the code has to look installed
    monkeypatch.setitem(sys.modules, "asking", module)
    return module


def of_library(library, function, *, of_batch):
    def factory():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = torch.ones(3, dtype=torch.int32)

        def step(batch):
            x, flags = batch
            out = (
                function(model(x), flags if of_batch else kept)
                if of_batch is not None
                else function(model(x))
            )
            return update(out.square().mean(), optimizer)

        return step, (torch.randn(2, 4), torch.ones(3, dtype=torch.int32))

    return factory


def test_any_library_that_asks_is_told_what_eager_tells_it(library):
    assert_same_bits(of_library(library, library.scaled, of_batch=True))


def test_a_branch_for_traces_is_named_in_the_report(library):
    for function, of_batch in ((library.clamped, None), (library.scaled, False)):
        step, batch = of_library(library, function, of_batch=of_batch)()
        captured = capture_step(step, (batch,))
        told = [note for note in captured.steady.rewrites if "layers.py" in note]
        assert len(told) == 1
        assert "traced" in told[0]
    assert library.is_tracing.__name__ == "is_tracing"
    assert not hasattr(library.is_tracing, "__wrapped__")


def encoder(**options):
    def factory():
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.1, batch_first=True, **options)
        model = nn.ModuleList([nn.Linear(4, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)])
        model.eval()

        @torch.no_grad()
        def step(x):
            return model[1](model[0](x)).mean(1)

        return step, torch.randn(3, 5, 4)

    return factory


def attention():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def step(x):
        with torch.inference_mode(False), torch.no_grad():
            return layer(x, x, x, need_weights=False)[0].cos()

    return step, torch.randn(3, 5, 16)


def test_modules_in_evaluation_take_the_fast_path_of_eager():
    encoders = (encoder(), encoder(norm_first=True), encoder(activation="gelu"))
    assert_same_bits(joined(*encoders, attention), steps=2)
