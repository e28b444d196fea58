"""Which calls write where they are told, found by running them."""

from __future__ import annotations

import pytest
import torch

from neaptide.cost.cache import OpCostCache
from neaptide.ops import registry
from neaptide.runtime.arena import out_probe
from neaptide.runtime.arena.out_probe import probe_outs
from support.torch_programs import Recorder


@pytest.fixture
def cache(tmp_path):
    return OpCostCache(tmp_path / "costs")


def facts_of(op, cache, *args, **options):
    """What is found about one call; tensors among the arguments become inputs."""
    rec = Recorder()
    given = [rec.input(a, f"x{k}") if isinstance(a, torch.Tensor) else a for k, a in enumerate(args)]
    made = rec.call(op, *given)
    graph = rec.finish([v for v in (made if isinstance(made, list) else [made]) if v is not None])
    (facts,) = probe_outs(graph, registry(), cache=cache, **options).values()
    return facts


def test_clean_overloads_are_found_and_others_are_not(cache):
    x = torch.randn(64, 64)
    assert facts_of("aten.mm.default", cache, x, x).variant.op == "aten.mm.out"
    assert facts_of("aten.topk.default", cache, x, 3).variant.keywords == ("values", "indices")
    assert facts_of("aten.clone.default", cache, x).variant.is_copy
    assert facts_of("aten.relu.default", cache, x).variant.op == "aten.clamp_min.out"
    assert facts_of("aten._softmax.default", cache, x, 1, False).variant.op == "aten._softmax.out"
    nothing = facts_of("aten.native_layer_norm.default", cache, x, [64], None, None, 1e-5)
    assert nothing.variant is None
    assert nothing.reason == out_probe.NO_OVERLOAD


def test_an_overload_that_resizes_what_it_is_given_is_refused(cache, capfd):
    x = torch.randn(8, 8)
    facts = facts_of("aten.mse_loss.default", cache, x, x, 1)
    capfd.readouterr()  # torch warns of the resize
    assert facts.variant is None
    assert "replaces" in facts.reason or "anew" in facts.reason


def test_the_overload_must_save_the_bytes_of_the_result(cache, monkeypatch):
    """With the generated overloads let in, measuring finds that they allocate their results all the same."""
    from neaptide.lower.places import OutVariant

    generated = (OutVariant("aten.native_layer_norm.out", ("out0", "out1", "out2")),)
    monkeypatch.setattr(out_probe, "out_variants", lambda _op: generated)
    facts = facts_of("aten.native_layer_norm.default", cache, torch.randn(64, 64), [64], None, None, 1e-5)
    assert facts.variant is None
    assert "allocates its result all the same" in facts.reason


def test_an_overload_with_other_bits_is_refused(cache, monkeypatch):
    from neaptide.lower.places import OutVariant

    monkeypatch.setattr(out_probe, "out_variants", lambda _op: (OutVariant("aten.sub.out", ("out",)),))
    x = torch.randn(8, 8)
    facts = facts_of("aten.add.Tensor", cache, x, x)
    assert facts.variant is None
    assert "other bits" in facts.reason


def test_answers_are_kept(cache, monkeypatch):
    x = torch.randn(64, 64)
    first = facts_of("aten.mm.default", cache, x, x)
    monkeypatch.setattr(out_probe, "_run", lambda _trials: pytest.fail("run again"))
    assert facts_of("aten.mm.default", cache, x, x) == first


def test_what_is_too_large_to_run_alone_is_not_taken_at_its_word(cache, monkeypatch):
    x = torch.randn(64, 64)
    monkeypatch.setattr(out_probe, "may_take_bytes", lambda: 1000)
    facts = facts_of("aten.mm.default", cache, x, x)
    assert facts.variant is None
    assert "more than" in facts.reason


def test_the_world_is_left_as_it_was(cache):
    x = torch.randn(16, 16)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    facts_of("aten.mm.default", cache, x, x)
    # The recorder of the test seeds and draws nothing itself.
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_running_statistics_are_written_as_ever(cache):
    x, mean, variance = torch.randn(4, 3, 5, 5), torch.zeros(3), torch.ones(3)
    facts = facts_of("aten.native_batch_norm.default", cache, x, None, None, mean, variance, True, 0.1, 1e-5)
    assert facts.variant.op == "aten.native_batch_norm.out"


def test_random_numbers_are_left_alone(cache):
    facts = facts_of("aten.bernoulli.p", cache, torch.rand(8, 8), 0.5)
    assert facts.variant is None
