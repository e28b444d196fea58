"""Floating-point operations of a call, a multiply-add counted as two, as size expressions."""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.ir.nodes import Arg
from neaptide.ir.registry import Call, SizeRule
from neaptide.ir.values import Value
from neaptide.ops.byte_sizes import tensors_of
from neaptide.symbolic.size_expr import SizeExpr


def product(extents: Iterable[int | SizeExpr]) -> SizeExpr:
    """Product of some extents; 1 for none."""
    total = SizeExpr.const(1)
    for extent in extents:
        total = total * extent
    return total


def tensor(call: Call, position: int, name: str | None = None) -> Value:
    """The tensor at a position. Raises `ValueError` where there is none."""
    value = call.value(position, name)
    if value is None:
        raise ValueError(f"{call.node.op} is called without the tensor argument {position}")
    return value


def per_output(operations: int) -> SizeRule:
    """A fixed number of operations for each element of the first tensor result (or first operand if none)."""

    def rule(call: Call) -> SizeExpr:
        tensors = [v for v in (*call.outputs(), *call.inputs()) if not v.is_host_scalar]
        return tensors[0].numel * operations if tensors else SizeExpr.const(operations)

    return rule


def per_input(operations: int, position: int = 0) -> SizeRule:
    """A fixed number of operations for each element of one operand: reductions, scans, backward passes of pools."""
    return lambda call: tensor(call, position).numel * operations


def per_list_element(operations: int) -> SizeRule:
    """A fixed number of operations for each element of all tensors of the first list argument: `_foreach_*`, `_fused_*`."""

    def rule(call: Call) -> SizeExpr:
        total = SizeExpr.const(0)
        for value in tensors_of(call, call.arg(0)):
            total = total + value.numel
        return total * operations

    return rule


def per_input_times_log() -> SizeRule:
    """Comparison sort: about 2 n log2 n, with log2 n taken as 20, its value at a million elements."""
    return per_input(40)


def matmul(left: int, right: int) -> SizeRule:
    """`2 m k n` for (..., m, k) @ (..., k, n), (k, n) or (k): every element of `left` meets n columns of `right`."""

    def rule(call: Call) -> SizeExpr:
        a, b = tensor(call, left), tensor(call, right)
        columns = b.shape[-1] if len(b.shape) > 1 else SizeExpr.const(1)
        return a.numel * columns * 2

    return rule


def dot_products(call: Call) -> SizeExpr:
    """`2 k` for each element of the result, k being the length of the left side's last axis."""
    left = tensor(call, 0)
    return call.output().numel * left.shape[-1] * 2


def linear(call: Call) -> SizeExpr:
    """`2 m k n` for a dense layer whose weight is (n, k)."""
    return tensor(call, 0).numel * tensor(call, 1).shape[0] * 2


def outer_product(call: Call) -> SizeExpr:
    """`addr`: one multiply-add for each element of the result."""
    return call.output().numel * 2


def grouped_matmul(call: Call) -> SizeExpr:
    """Grouped matrix product: every row of the left side meets the columns of one group of the right."""
    return tensor(call, 0).numel * tensor(call, 1).shape[-1] * 2


def list_matmul(call: Call) -> SizeExpr:
    """`_foreach_mm`: the sum over the pairs of the lists."""
    total = SizeExpr.const(0)
    pairs = zip(tensors_of(call, call.arg(0)), tensors_of(call, call.arg(1)), strict=True)
    for a, b in pairs:
        total = total + a.numel * b.shape[-1] * 2
    return total


def _convolution(grid: SizeExpr, weight: Value) -> SizeExpr:
    return grid * product(weight.shape[1:]) * 2


def convolution(transposed_at: int | None = 6, *, weight: int = 1) -> SizeRule:
    """Convolution: each element of the result is a dot product over `weight.shape[1:]`.

    A transposed convolution does the same for each element of its input. Groups are in the weight's shape; padding
    is counted as if it were data, as is usual; the bias is not counted.
    """

    def rule(call: Call) -> SizeExpr:
        transposed = transposed_at is not None and bool(call.arg(transposed_at))
        grid = tensor(call, 0).numel if transposed else call.output().numel
        return _convolution(grid, tensor(call, weight))

    return rule


def transposed_convolution(call: Call) -> SizeExpr:
    """Each element of the input meets `weight.shape[1:]`."""
    return _convolution(tensor(call, 0).numel, tensor(call, 1))


def convolution_backward(call: Call) -> SizeExpr:
    """As much as the forward pass for each of the two gradients that `output_mask` asks for."""
    grad_output, given, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    one_gradient = _convolution(given.numel if call.arg(7) else grad_output.numel, weight)
    mask = call.arg(10, "output_mask")
    wanted = sum(1 for m in mask[:2] if m) if isinstance(mask, tuple) else 2
    total = one_gradient * wanted
    if isinstance(mask, tuple) and any(mask[2:]):
        total = total + grad_output.numel
    return total


def linear_backward(call: Call) -> SizeExpr:
    """`aten.linear_backward(self, grad_output, weight, output_mask)`."""
    grad_output, weight, mask = tensor(call, 1), tensor(call, 2), call.arg(3)
    wanted = sum(1 for m in mask[:2] if m) if isinstance(mask, tuple) else 2
    return grad_output.numel * weight.shape[-1] * 2 * wanted


def trilinear(call: Call) -> SizeExpr:
    """`_trilinear` as `nn.Bilinear` calls it, (b, i), (o, i, j), (b, j): three operations for each row and weight."""
    return tensor(call, 0).shape[0] * tensor(call, 1).numel * 3


def attention(batch_first: bool = False, *, backward: bool = False) -> SizeRule:
    """Scaled dot product attention: both products, `2 b h s t (d + e)`. A causal mask is not discounted.

    Operands are (b, h, s, d), or (b, s, h, d) where they are `batch_first`. Backward the scores are computed anew, so five
    products instead of two.
    """

    def rule(call: Call) -> SizeExpr:
        scores, depth, value_depth = _attention_sizes(call, batch_first, 1 if backward else 0)
        return scores * (depth * (3 if backward else 1) + value_depth * (2 if backward else 1)) * 2

    return rule


def _attention_sizes(call: Call, batch_first: bool, first: int) -> tuple[SizeExpr, SizeExpr, SizeExpr]:
    """Number of scores, depth of query and key, depth of value.

    Packed operands (tokens, h, d) of unequal sequences are counted as if every query met all keys: an upper bound.
    """
    query, key, value = (tensor(call, first + k) for k in range(3))
    keys_axis = -3 if batch_first or len(key.shape) == 3 else -2
    rows = product(query.shape[:-1])
    return rows * key.shape[keys_axis], query.shape[-1], value.shape[-1]


def rnn_layer(passes: int, weights: tuple[int, ...]) -> SizeRule:
    """One recurrent layer: every row of the input (time and batch) meets every element of the matrices among the weights.

    The backward pass (gradient of input and of weights) counts as two passes.
    """

    def rule(call: Call) -> SizeExpr:
        rows = product(tensor(call, 0).shape[:-1])
        total = SizeExpr.const(0)
        for position in weights:
            for weight in tensors_of(call, call.arg(position)):
                if len(weight.shape) >= 2:
                    total = total + weight.numel
        return rows * total * 2 * passes

    return rule


def fft(call: Call) -> SizeExpr:
    """Fast Fourier transform: `5 n log2 n`, with log2 n taken as 10, its value at a thousand points."""
    return tensor(call, 0).numel * 50


def cubic(call: Call) -> SizeExpr:
    """Dense factorisations and inverses of (..., n, n): about n^3."""
    matrix = tensor(call, 0)
    return matrix.numel * matrix.shape[-1]


def distances(call: Call) -> SizeExpr:
    """`_cdist_forward`: three operations for each pair of points and coordinate."""
    return call.output().numel * tensor(call, 0).shape[-1] * 3


def distances_backward(call: Call) -> SizeExpr:
    """`_cdist_backward(grad, x1, x2, p, cdist)`: three operations for each pair of points and coordinate."""
    return tensor(call, 0).numel * tensor(call, 1).shape[-1] * 3


def window(call: Call) -> SizeExpr:
    """Pooling with a kernel: one operation for each tap of each result."""
    return taps(call, call.arg(1, "kernel_size"))


def taps(call: Call, kernel: Arg) -> SizeExpr:
    """Results times the elements of a kernel, which is one length or has one for each dim."""
    lengths = kernel if isinstance(kernel, tuple) else (kernel,)
    return call.output().numel * product(e for e in lengths if isinstance(e, int | SizeExpr))
