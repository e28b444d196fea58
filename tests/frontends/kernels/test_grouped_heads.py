"""Grouped-query attention is captured with the branch that eager takes."""

import os

import pytest
import torch
from torch.nn import functional

from neaptide import zoo
from neaptide.frontends.kernels.causal_mask import grouped_heads
from neaptide.frontends.torch_step import capture_step
from programs.program import descending
from support.step_checks import assert_same_bits

KEPT = "keys and values of grouped heads are not repeated, as without a mask"
SWITCH = "TRANSFORMERS_SDPA_FORCE_GQA"
LLAMA = "llama@tiny,layers=1"


def test_llama_reads_its_few_keys():
    step, batch = zoo.factory(LLAMA)()
    program = capture_step(step, (batch,)).steady
    attention = next(n for n in program.graph.nodes if n.op.endswith("flash_attention_for_cpu.default"))
    query, key, value = (program.graph.values[v].shape[1].evaluate({}) for v in attention.inputs[:3])
    assert (query, key, value) == (4, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_llama_keeps_eagers_bits(precision):
    assert_same_bits(zoo.factory(f"{LLAMA},{precision}"))


@pytest.mark.parametrize("before", [None, "0"])
def test_switch_is_as_before_also_after_an_error(monkeypatch, before):
    if before is None:
        monkeypatch.delenv(SWITCH, raising=False)
    else:
        monkeypatch.setenv(SWITCH, before)

    def fail():
        with grouped_heads():
            assert os.environ[SWITCH] == "1"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.environ.get(SWITCH) == before


def test_heads_that_the_users_code_repeats_stay_repeated():
    def factory():
        torch.manual_seed(0)
        layer = torch.nn.Linear(8, 8 + 4 + 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def loss_of(x):
            query, key, value = layer(x).split([8, 4, 4], -1)
            query = query.view(2, 16, 2, 4).transpose(1, 2)
            key, value = (t[:, None, None].expand(2, 1, 2, 16, 4).reshape(2, 2, 16, 4) for t in (key, value))
            mask = torch.ones(16, 16, dtype=torch.bool).tril()
            return functional.scaled_dot_product_attention(query, key, value, mask).square().sum()

        return descending(optimizer, loss_of), torch.rand(2, 16, 8)

    step, batch = factory()
    assert KEPT not in capture_step(step, (batch,)).steady.rewrites
