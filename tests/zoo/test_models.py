"""Every model at its smallest size is a working, repeatable training step; the published size builds on meta."""

import pytest
import torch

from frontends.kernels.kernel_support import skip_without_kernel
from neaptide import zoo
from neaptide.errors import UsageError
from support.together import together

PUBLISHED_PARAMETERS = {  # of the cited papers and their released models
    "resnet50": 25_557_032,
    "densenet121": 7_978_856,
    "unet2d": 35_746_307,
    "vit": 86_567_656,
    "gpt2": 124_439_808,
    "gptneo": 1_315_575_808,
    "llama": 1_235_814_400,
}


def closed_over(step, kind):
    (found,) = (cell.cell_contents for cell in step.__closure__ if isinstance(cell.cell_contents, kind))
    return found


def run_two_steps(spec):
    """Losses of two steps, and the model before and after."""
    step, batch = zoo.factory(spec)()
    model = closed_over(step, torch.nn.Module)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    inputs = {name: t.clone() for name, t in batch.items()}
    losses = torch.stack([step(batch), step(batch)])
    assert all(torch.equal(batch[name], inputs[name]) for name in batch)
    return losses, before, model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", zoo.names())
def test_two_tiny_steps_train_and_repeat_bitwise(name, precision):
    skip_without_kernel(name, precision)
    losses, before, model = run_two_steps(f"{name}@tiny,{precision}")
    assert not losses.requires_grad
    assert losses.isfinite().all()
    assert losses[0] != losses[1]
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    changed = [not torch.equal(before[key], p) for key, p in model.named_parameters()]
    assert sum(changed) >= 0.9 * len(changed)
    torch.rand(3)  # whatever happened to the generator in between does not matter
    again, *_ = run_two_steps(f"{name}@tiny,{precision}")
    assert torch.equal(losses, again)


@together("name", zoo.names())
def test_paper_size_builds_on_meta(name):
    step, batch = zoo.factory(f"{name}@paper", device="meta")()
    model = closed_over(step, torch.nn.Module)
    tensors = [*model.parameters(), *model.buffers(), *batch.values()]
    assert {t.device.type for t in tensors} == {"meta"}
    count = sum(p.numel() for p in model.parameters())
    assert count == PUBLISHED_PARAMETERS.get(name, count)


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
