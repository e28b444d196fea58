"""Every model at its smallest size is a working, repeatable training step; the published size builds on meta."""

import inspect
import subprocess
import sys

import pytest
import torch

from kernel_support import skip_without_kernel
from neaptide import zoo
from neaptide.errors import UsageError
from together import together

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


@pytest.mark.parametrize("name", ["btlm", "gptneo"])
def test_parameters_themselves_in_bf16(name):
    losses, _, model = run_two_steps(f"{name}@tiny,bf16_params")
    assert losses.isfinite().all()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@together("name", zoo.names())
def test_paper_size_builds_on_meta(name):
    step, batch = zoo.factory(f"{name}@paper", device="meta")()
    model = closed_over(step, torch.nn.Module)
    tensors = [*model.parameters(), *model.buffers(), *batch.values()]
    assert {t.device.type for t in tensors} == {"meta"}
    count = sum(p.numel() for p in model.parameters())
    assert count == PUBLISHED_PARAMETERS.get(name, count)


@pytest.mark.slow
def test_meta_allocates_nothing():
    code = (
        "import resource, torch, transformers; from neaptide import zoo; zoo.factory('gptneo')(); "
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak(); "
        "zoo.factory('gptneo@paper', device='meta')(); zoo.factory('btlm@paper', device='meta')(); "
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 * 1024  # KiB; the two models together hold 8 GB


def test_step_is_a_plain_function_of_the_batch():
    step, batch = zoo.factory("gpt2")()
    assert inspect.isfunction(step)
    assert list(inspect.signature(step).parameters) == ["batch"]
    assert isinstance(batch, dict)
    assert isinstance(closed_over(step, torch.optim.Optimizer), torch.optim.AdamW)


def test_seed_and_dropout_change_the_numbers():
    losses, *_ = run_two_steps("gpt2")
    assert not torch.equal(losses, run_two_steps("gpt2,seed=1")[0])
    dropped, *_ = run_two_steps("gpt2,dropout=0.1")
    assert not torch.equal(losses, dropped)
    assert torch.equal(dropped, run_two_steps("gpt2,dropout=0.1")[0])


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("llama", torch.optim.AdamW),
        ("llama,optimizer=sgd", torch.optim.SGD),
        ("mlp,optimizer=adamw", torch.optim.AdamW),
    ],
)
def test_optimizers_have_default_flags(spec, kind):
    step, _ = zoo.factory(spec)()
    optimizer = closed_over(step, torch.optim.Optimizer)
    assert type(optimizer) is kind
    assert optimizer.defaults["foreach"] is None
    assert not optimizer.defaults["fused"]


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


def test_alibi_slopes_follow_the_paper():
    from neaptide.zoo.language import alibi_slopes

    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(6) == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


def test_btlm_attends_to_the_past_only():
    step, batch = zoo.factory("btlm")()
    model = closed_over(step, torch.nn.Module).eval()
    changed = batch["tokens"].clone()
    changed[:, -1] = (changed[:, -1] + 1) % 128
    with torch.no_grad():
        first, second = model(batch["tokens"]), model(changed)
    torch.testing.assert_close(first[:, :-1], second[:, :-1], rtol=0, atol=1e-6)
    assert not torch.allclose(first[:, -1], second[:, -1])


def test_bert_labels_are_ignored_except_every_seventh():
    _, batch = zoo.factory("bert")()
    kept = batch["labels"] != -100
    assert kept[:, ::7].all()
    assert kept.sum() == kept[:, ::7].sum()
    assert torch.equal(batch["labels"][kept], batch["input_ids"][kept])
