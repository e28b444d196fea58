"""Every model at its smallest size is a working, repeatable training step; the published size builds on meta."""

import pytest
import torch

from neaptide import zoo
from neaptide.errors import UsageError
from support.together import together
from zoo.test_model_conformance import run_two_steps


def test_seed_and_dropout_change_the_numbers():
    losses, *_ = run_two_steps("gpt2")
    assert not torch.equal(losses, run_two_steps("gpt2,seed=1")[0])
    dropped, *_ = run_two_steps("gpt2,dropout=0.1")
    assert not torch.equal(losses, dropped)
    assert torch.equal(dropped, run_two_steps("gpt2,dropout=0.1")[0])


@pytest.mark.parametrize(
    "spec", ["unet,norm=batch", "unetpp,norm=batch,deep_supervision=true", "gptneo,layers=3"]
)
def test_variants_train(spec):
    losses, *_ = run_two_steps(spec)
    assert losses.isfinite().all()


@together(
    "spec",
    [
        "gpt2,width=33",
        "llama,kv_heads=3",
        "llama,optimizer=adagrad",
        "vit,image=33",
        "unet,image=30",
        "unet,norm=layer",
        "unet2d,attention_level=2",
        "unet2d,width=20",
        "mlp,device=abacus",
    ],
)
def test_impossible_sizes_are_usage_errors(spec):
    with pytest.raises(UsageError):
        zoo.factory(spec)()
