"""A training step in C updates its weights where they are, and follows PyTorch."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from lower.c import c_programs
from neaptide.autodiff.gradient import grad
from neaptide.errors import UsageError
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.c.of_model import write_c
from support import onnx_cases

_STEPS = 100
_RATE = 0.05
_TEXT = """
lenet (float[1,1,12,12] x, float[1,5] t, float[4,1,3,3] w0, float[4] w1, float[6,4,3,3] w2, float[6] w3,
       float[54,5] w4, float[5] w5) => (float loss)
{
  a = Conv<pads=[1, 1, 1, 1]>(x, w0, w1)
  b = Relu(a)
  c = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(b)
  d = Conv<pads=[1, 1, 1, 1]>(c, w2, w3)
  e = Relu(d)
  f = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(e)
  g = Flatten(f)
  h = Gemm(g, w4, w5)
  i = LogSoftmax<axis=1>(h)
  j = Mul(i, t)
  k = ReduceSum<keepdims=0>(j)
  loss = Neg(k)
}
"""
_MAIN = """
int main(void) {
  FILE *data = fopen("data.in", "rb"), *losses = fopen("losses.out", "wb");
  for (int step = 0; step < %d; step++) {
    if (fread(lenet_in_x(), 4, 144, data) != 144 || fread(lenet_in_t(), 4, 5, data) != 5) return 1;
    lenet_run();
    fwrite(lenet_out_loss(), 4, 1, losses);
  }
  fwrite(lenet_weight_w4(), 1, LENET_WEIGHT_W4_BYTES, losses);
  fclose(losses);
  return 0;
}
"""


def _model() -> onnx.ModelProto:
    model = onnx_cases.model_of(_TEXT, opset=18)
    for tensor in model.graph.initializer:
        array = 0.2 * onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


def _trained(model: onnx.ModelProto) -> onnx.ModelProto:
    names = [f"w{number}" for number in range(6)]
    return onnx_ir.to_proto(grad(onnx_ir.from_proto(model), "loss", names, sgd=_RATE))


def _torch(model: onnx.ModelProto, x: np.ndarray, t: np.ndarray) -> tuple[list[float], np.ndarray]:
    """The loss of each step, and the weights of the last layer after them."""
    import torch
    from torch.nn import functional

    weights = [
        torch.tensor(onnx.numpy_helper.to_array(tensor).copy(), requires_grad=True)
        for tensor in sorted(model.graph.initializer, key=lambda tensor: tensor.name)
    ]
    losses = []
    for image, target in zip(torch.tensor(x), torch.tensor(t), strict=True):
        hidden = functional.max_pool2d(functional.conv2d(image, weights[0], weights[1], padding=1).relu(), 2)
        hidden = functional.max_pool2d(functional.conv2d(hidden, weights[2], weights[3], padding=1).relu(), 2)
        scores = hidden.flatten(1) @ weights[4] + weights[5]
        loss = -(scores.log_softmax(1) * target).sum()
        losses.append(loss.item())
        found = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, found, strict=True):
                weight.sub_(_RATE * gradient)
    return losses, weights[4].detach().numpy()


def test_a_hundred_steps_of_sgd_follow_pytorch(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((_STEPS, 1, 1, 12, 12)).astype(np.float32)
    t = np.eye(5, dtype=np.float32)[rng.integers(0, 5, _STEPS)][:, None]
    model = _model()
    updates = {f"w{number}_new": f"w{number}" for number in range(6)}
    program = write_c(read_model(_trained(model)), "lenet", c_programs.CHECKED_SETTINGS, updates=updates)
    weights = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)
    assert program.variable_bytes == weights
    rows = np.concatenate([x.reshape(_STEPS, -1), t.reshape(_STEPS, -1)], axis=1)
    (tmp_path / "data.in").write_bytes(rows.tobytes())
    c_programs.run(c_programs.build(tmp_path, {"lenet": program}, _MAIN % _STEPS))
    found = np.frombuffer((tmp_path / "losses.out").read_bytes(), np.float32)
    losses, last = _torch(model, x, t)
    np.testing.assert_allclose(found[:_STEPS], losses, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[_STEPS:].reshape(last.shape), last, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("made", "weight"), [("nothing", "w0"), ("w0_new", "nothing"), ("w0_new", "w1")])
def test_an_update_that_cannot_be_meant_is_refused(made: str, weight: str) -> None:
    with pytest.raises(UsageError, match="cannot replace"):
        write_c(read_model(_trained(_model())), "lenet", updates={made: weight})
