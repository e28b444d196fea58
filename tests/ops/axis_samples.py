"""A call or more for each row of axes, on random numbers. Axes have 7 or 5 elements, others fewer, none by accident alike."""

import torch
from torch.utils._pytree import tree_leaves

REAL = torch.float64


def overload(name):
    base, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), kind)


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def real(*shape):
    """Between 0.2 and 0.8: no sum vanishes, and every function is defined there."""
    return torch.rand(shape, dtype=REAL) * 0.6 + 0.2


def whole(below, *shape):
    return torch.randint(0, below, shape)


def each(names, args, kwargs=None):
    """The same call of several operations."""
    for name in names.split():
        yield name if "." in name else f"{name}.default", args, kwargs or {}


def _views():
    x = real(7, 5, 3)
    yield "view.default", (x, [35, 3])
    yield "view.default", (real(35, 3), [7, 5, 3])
    yield "view.default", (real(7, 6), [7, 2, 3])
    yield "view.default", (real(7, 2, 3), [7, -1])
    yield "_unsafe_view.default", (x, [7, 15])
    yield "reshape.default", (x, [7, 15])
    yield "unsqueeze.default", (x, 1)
    yield "flatten.using_ints", (x, 1)
    yield "ravel.default", (x,)
    yield "view_copy.default", (x, [7, 15])
    yield "_reshape_copy.default", (x, [7, 15])
    yield "unsqueeze_copy.default", (x, 0)
    names = "alias detach lift_fresh contiguous lift conj positive _conj _neg_view real imag resolve_conj resolve_neg"
    for name in names.split():
        given = x.to(torch.complex128) if name in {"imag", "_conj", "conj", "_neg_view"} else x
        yield f"{name}.default", (given,)
    yield from each("transpose.int swapaxes.default swapdims.default transpose_copy.int", (x, 0, -2))
    yield from each("t.default numpy_T.default t_copy.default mT.default", (real(7, 5),))
    yield "mT.default", (x,)
    yield "permute.default", (x, [2, 0, -2])
    yield "permute_copy.default", (x, [1, 2, 0])
    yield from each("select.int select_copy.int", (x, 1, 2))
    yield from each("unbind.int unbind_copy.int", (x, 2))
    yield "squeeze.dim", (real(7, 1, 5), 1)
    yield "squeeze.dims", (real(7, 1, 5, 1), [1, 3])
    yield "squeeze_copy.dim", (real(7, 1, 5), -2)
    yield "squeeze_copy.dims", (real(7, 1, 5, 1), [1, -1])
    names = "slice.Tensor slice_copy.Tensor"
    yield from each(names, (x, 2, 1, 3))
    yield from each(names, (x, 1, 0, 2**63 - 1))
    yield from each("narrow.default narrow_copy.default", (x, 2, 1, 2))
    yield from each("split.Tensor unsafe_split.Tensor split_copy.Tensor", (x, 2, 2))
    yield from each(
        "split_with_sizes.default unsafe_split_with_sizes.default split_with_sizes_copy.default",
        (x, [1, 2], 2),
    )
    yield "split.sizes", (x, [1, 2], 2)
    yield "split_with_sizes.default", (real(7, 14), [7, 7], 1)  # sizes like the shape of a result
    yield from each("chunk.default unsafe_chunk.default", (x, 3, 2))
    names = "expand.default broadcast_to.default expand_copy.default"
    yield from each(names, (real(7, 1, 3), [5, 7, 2, 3]))
    yield from each(names, (real(7, 1), [-1, 5]))
    yield from each("cat.default concat.default concatenate.default", ([x, real(7, 2, 3), real(7, 5, 3)], 1))
    yield from each("stack.default _stack.default", ([x, real(7, 5, 3)], 1))
    yield "constant_pad_nd.default", (x, [1, 2], 0.5)
    yield "constant_pad_nd.default", (x, [0, 0, 1, 0])
    yield "glu.default", (real(7, 5, 4), -1)
    yield "unfold.default", (x, 1, 3, 2)
    yield "view_as_real.default", (torch.complex(real(7, 5), real(7, 5)),)
    yield "view_as_complex.default", (real(7, 5, 2),)
    yield "roll.default", (x, [2, 1], [1, -1])
    yield "flip.default", (x, [1, -1])
    yield "tril.default", (x,)
    yield "triu.default", (x, 1)
    yield "repeat.default", (real(7, 5), [2, 1, 3])
    yield "slice_backward.default", (real(7, 2, 3), [7, 5, 3], 1, 1, 3, 1)
    yield "select_backward.default", (real(7, 3), [7, 5, 3], 1, 2)
    yield "slice_scatter.default", (x, real(7, 2, 3), 1, 1, 3)


def _contractions():
    yield "mm.default", (real(7, 5), real(5, 3))
    yield "bmm.default", (real(7, 5, 3), real(7, 3, 2))
    yield "mv.default", (real(7, 5), real(5))
    yield "dot.default", (real(7), real(7))
    yield "outer.default", (real(7), real(5))
    yield "ger.default", (real(7), real(5))
    names = "addmm.default addmm_.default"
    yield from each(names, (real(7, 3), real(7, 5), real(5, 3)))
    yield from each(names, (real(7, 3), real(7, 5), real(5, 3)), {"beta": 0})
    yield "addmm.default", (real(3), real(7, 5), real(5, 3))
    yield from each("addmv.default addmv_.default", (real(7), real(7, 5), real(5)))
    yield from each("baddbmm.default baddbmm_.default", (real(7, 5, 2), real(7, 5, 3), real(7, 3, 2)))
    yield from each("addbmm.default addbmm_.default", (real(5, 2), real(7, 5, 3), real(7, 3, 2)))
    yield "linear.default", (real(2, 7, 5), real(3, 5), real(3))
    yield "linear.default", (real(2, 7, 5), real(3, 5))
    yield "matmul.default", (real(7, 1, 5, 3), real(2, 3, 4))


def _convolutions():
    for size, stride, padding, dilation in (
        ((3, 3), 1, 1, 1),
        ((3, 2), 2, 1, 1),
        ((2, 2), 2, 0, 1),
        ((3, 3), 1, 2, 2),
    ):
        for bias in (real(5), None):
            args = ([stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], 1)
            yield "convolution.default", (real(7, 3, 12, 14), real(5, 3, *size), bias, *args)
        yield "convolution.default", (real(7, 5, 12, 14), real(5, 1, *size), None, *args[:-1], 5)
    for output_padding in ([0, 0], [1, 0]):
        args = ([2, 3], [0, 0], [1, 1], True, output_padding, 1)
        yield "convolution.default", (real(7, 3, 6, 5), real(3, 5, 2, 3), real(5), *args)
    for mask in ([True, True, True], [True, True, False], [True, False, False], [False, True, True]):
        for stride, padding, size in ((1, 1, 3), (2, 0, 2)):
            out = 12 if stride == 1 else 6
            args = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0])
            shapes = (real(7, 5, out, out), real(7, 3, 12, 12), real(5, 3, size, size))
            yield "convolution_backward.default", (*shapes, [5], *args, 1, mask)
            shapes = (real(7, 5, out, out), real(7, 5, 12, 12), real(5, 1, size, size))
            yield "convolution_backward.default", (*shapes, [5], *args, 5, mask)


def _attention():
    name = "_scaled_dot_product_flash_attention_for_cpu.default"
    backward = "_scaled_dot_product_flash_attention_for_cpu_backward.default"
    for causal in (False, True):
        for mask in (None, real(7, 4), real(5, 1, 7, 4), real(1, 3, 1, 4), real(5, 3, 7, 4)):
            keys = 7 if causal else 4
            if causal and mask is not None:
                continue
            query, key, value = real(5, 3, 7, 2), real(5, 3, keys, 2), real(5, 3, keys, 2)
            masked = {} if mask is None else {"attn_mask": mask}
            out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, 0.0, causal, **masked
            )
            yield name, (query, key, value, 0.0, causal), masked
            yield backward, (real(5, 3, 7, 2), query, key, value, out, total, 0.0, causal), masked
    yield name, (real(5, 3, 7, 2), real(5, 3, 4, 2), real(5, 3, 4, 2)), {}


def _reductions():
    x = real(7, 5, 3)
    names = "sum.dim_IntList mean.dim amax.default amin.default"
    yield from each(names, (x, [0, -1]))
    yield from each(names, (x, [1], True))
    yield from each(names, (x, []))
    yield "sum.dim_IntList", (real(2, 3, 4, 5), [2, 3])  # dims like the shape of the result
    yield from each("sum.default mean.default max.default min.default", (x,))
    names = "argmax.default argmin.default"
    yield from each(names, (x, 1))
    yield from each(names, (x, 1, True))
    names = "prod.dim_int max.dim min.dim median.dim mode.default cumsum.default cumprod.default"
    for name in (*names.split(), "logcumsumexp.default", "cummax.default", "cummin.default"):
        yield name, (x, 1)
    names = "linalg_vector_norm.default norm.ScalarOpt_dim"
    yield from each(names, (x, 2, [1]))
    yield from each(names, (x, 2, [0, -1], True))
    yield "linalg_vector_norm.default", (x,)
    yield "logsumexp.default", (x, [1])
    yield from each("var.correction std.correction var_mean.correction std_mean.correction", (x, [1]))
    yield from each("all.dim any.dim", (x > 0.5, 1))
    yield from each("all.dims any.dims", (x > 0.5, [1]))
    yield "sort.default", (x, 1)
    yield "argsort.default", (x, 1)
    yield "topk.default", (x, 2, 1)
    yield "_softmax.default", (x, 1, False)
    yield "_log_softmax.default", (x, -1, False)
    yield "_safe_softmax.default", (x, 1)
    yield "softmax.int", (x, 1)
    yield "log_softmax.int", (x, 1)
    yield from each(
        "_softmax_backward_data.default _log_softmax_backward_data.default", (x, real(7, 5, 3), 1, REAL)
    )


def _norms():
    x, aten = real(7, 5, 4, 3), torch.ops.aten
    for shape, weight, bias in (([4, 3], real(4, 3), real(4, 3)), ([3], None, None)):
        _, mean, scale = aten.native_layer_norm(x, shape, weight, bias, 1e-5)
        yield "native_layer_norm.default", (x, shape, weight, bias, 1e-5)
        mask = [True, weight is not None, bias is not None]
        args = (real(*x.shape), x, shape, mean, scale, weight, bias, mask)
        yield "native_layer_norm_backward.default", args
        yield "_fused_rms_norm.default", (x, shape, weight, 1e-5)
    x = real(7, 6, 4, 3)
    _, mean, scale = aten.native_group_norm(x, real(6), real(6), 7, 6, 12, 2, 1e-5)
    yield "native_group_norm.default", (x, real(6), real(6), 7, 6, 12, 2, 1e-5)
    args = (real(*x.shape), x, mean, scale, real(6), 7, 6, 12, 2, [True, True, True])
    yield "native_group_norm_backward.default", args
    x = real(7, 5, 4, 3)
    for training in (True, False):
        for name in ("native_batch_norm.default", "_native_batch_norm_legit.default"):
            yield name, (x, real(5), real(5), real(5), real(5), training, 0.1, 1e-5)
        running = (real(5), real(5))
        _, mean, scale = aten.native_batch_norm(x, real(5), real(5), *running, training, 0.1, 1e-5)
        for mask in ([True, True, True], [False, True, True]):
            args = (real(*x.shape), x, real(5), *running, mean, scale, training, 1e-5, mask)
            yield "native_batch_norm_backward.default", args
    yield "_native_batch_norm_legit.no_stats", (x, real(5), real(5), True, 0.1, 1e-5)


def _losses():
    for weight in (None, real(5)):
        for reduction in range(3):
            scores, target = real(7, 5), whole(5, 7)
            target[2] = -100
            out, total = torch.ops.aten.nll_loss_forward(scores, target, weight, reduction, -100)
            yield "nll_loss_forward.default", (scores, target, weight, reduction, -100)
            grad = real(*out.shape)
            yield "nll_loss_backward.default", (grad, scores, target, weight, reduction, -100, total)
            scores, target = real(7, 5, 4, 3), whole(5, 7, 4, 3)
            out, total = torch.ops.aten.nll_loss2d_forward(scores, target, weight, reduction, -100)
            yield "nll_loss2d_forward.default", (scores, target, weight, reduction, -100)
            grad = real(*out.shape)
            yield "nll_loss2d_backward.default", (grad, scores, target, weight, reduction, -100, total)
    for reduction in range(3):
        a, b = real(7, 5), real(7, 5)
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
            yield f"{name}.default", (a, b, reduction)
            grad = real(*(a.shape if reduction == 0 else ()))
            more = () if name == "mse_loss" else (1.0,)
            yield f"{name}_backward.default", (grad, a, b, reduction, *more)
        yield "l1_loss.default", (a, b, reduction)
        yield "soft_margin_loss.default", (a, b, reduction)
        grad = real(*(a.shape if reduction == 0 else ()))
        yield "soft_margin_loss_backward.default", (grad, a, b, reduction)
        for weight in (None, real(7, 1), real(5)):
            yield "binary_cross_entropy.default", (a, b, weight, reduction)
            yield "binary_cross_entropy_backward.default", (grad, a, b, weight, reduction)
            for positive in (None, real(5)):
                yield "binary_cross_entropy_with_logits.default", (a, b, weight, positive, reduction)


def _gathers():
    yield "embedding.default", (real(9, 3), whole(9, 7, 5))
    yield "embedding_dense_backward.default", (real(7, 5, 3), whole(9, 7, 5), 9, 2, False)
    yield "embedding_dense_backward.default", (real(7, 5, 3), whole(9, 7, 5), 9, -1, True)
    x = real(7, 5, 3, 2)
    names = "index.Tensor _unsafe_index.Tensor"
    yield from each(names, (x, [None, whole(5, 4)]))
    yield from each(names, (x, [whole(7, 4, 1), whole(5, 6)]))
    yield from each(names, (x, [None, whole(5, 4), whole(3, 4)]))
    yield from each(names, (x, [whole(7, 4), None, whole(3, 6, 4)]))
    yield "gather.default", (real(7, 5, 3), 1, whole(5, 7, 2, 3))
    yield "gather.default", (real(7, 5, 3), 1, whole(5, 4, 2, 3))
    yield "index_select.default", (real(7, 5, 3), 1, whole(5, 4))
    yield "index_add.default", (real(7, 5, 3), 1, whole(5, 4), real(7, 4, 3))
    for accumulate in (False, True):
        distinct = torch.tensor([3, 0, 4])
        yield "index_put.default", (real(7, 5, 3), [None, distinct], real(7, 3, 3), accumulate)
        yield "index_put.default", (real(7, 5, 3), [distinct, distinct], real(3, 3), accumulate)
    yield "index_put.default", (real(7, 5, 3), [whole(7, 4, 1), None, whole(3, 6)], real(4, 6, 5), True)
    yield "scatter.src", (real(7, 5, 3), 1, torch.tensor([3, 0]).view(1, 2, 1).repeat(7, 1, 3), real(7, 2, 3))
    yield "scatter.value", (real(7, 5, 3), 1, whole(5, 7, 2, 3), 0.25)
    yield "scatter_add.default", (real(7, 5, 3), 1, whole(5, 7, 2, 3), real(7, 2, 3))


def _pools():
    x = real(7, 5, 12, 8)
    for args in (([2, 2], [2, 2]), ([3, 3], [2, 2], [1, 1]), ([2, 4],), ([3, 2], [2, 2])):
        out, indices = torch.ops.aten.max_pool2d_with_indices(x, *args)
        yield "max_pool2d_with_indices.default", (x, *args)
        full = (args[0], args[1] if len(args) > 1 else args[0], args[2] if len(args) > 2 else [0, 0])
        rest = ([1, 1], False, indices)
        yield "max_pool2d_with_indices_backward.default", (real(*out.shape), x, *full, *rest)
        yield "avg_pool2d.default", (x, *args)
        rest = (False, True, None)
        yield "avg_pool2d_backward.default", (real(*out.shape), x, *full, *rest)
    for args in (([3, 3], [2, 2], [1, 1], [1, 1]), ([3, 2], [1, 3], [0, 1], [2, 1])):
        yield "max_pool2d_with_indices.default", (x, *args)
    yield "avg_pool2d.default", (x, [3, 3], [2, 1], [1, 1], False, False)
    yield "avg_pool2d.default", (x, [3, 3], [2, 1], [1, 1], True)
    yield "avg_pool2d.default", (x, [3, 3], [1, 2], [1, 0], False, False, 7)
    cube = real(7, 5, 4, 6, 2)
    out, indices = torch.ops.aten.max_pool3d_with_indices(cube, [2, 3, 2])
    yield "max_pool3d_with_indices.default", (cube, [2, 3, 2])
    args = ([2, 3, 2], [2, 3, 2], [0, 0, 0], [1, 1, 1], False, indices)
    yield "max_pool3d_with_indices_backward.default", (real(*out.shape), cube, *args)
    yield "adaptive_max_pool3d.default", (cube, [2, 3, 1])
    yield "avg_pool3d.default", (cube, [2, 3, 2])
    args = ([2, 3, 2], [2, 3, 2], [0, 0, 0], False, True, None)
    yield "avg_pool3d_backward.default", (real(7, 5, 2, 2, 1), cube, *args)
    yield "_adaptive_avg_pool3d.default", (cube, [2, 3, 1])
    out, indices = torch.ops.aten.adaptive_max_pool2d(x, [3, 2])
    yield "adaptive_max_pool2d.default", (x, [3, 2])
    yield "adaptive_max_pool2d_backward.default", (real(*out.shape), x, indices)
    for kind in ("reflection", "replication"):
        yield f"{kind}_pad1d.default", (real(7, 5, 4), [1, 2])
        yield f"{kind}_pad2d.default", (x, [1, 2, 0, 3])
    yield "pixel_shuffle.default", (real(7, 8, 3, 5), 2)
    yield "im2col.default", (x, [3, 2], [1, 1], [1, 0], [2, 1])
    yield "grid_sampler_2d.default", (x, real(7, 3, 4, 2), 0, 0, False)
    yield "_adaptive_avg_pool2d.default", (x, [3, 2])
    yield "_adaptive_avg_pool2d_backward.default", (real(7, 5, 3, 2), x)
    yield "upsample_nearest1d.default", (real(7, 5, 3), [6])
    yield "upsample_nearest1d.vec", (real(7, 5, 3), [6], None)
    yield "upsample_nearest2d.default", (x, [12, 32], None, 4.0)
    yield "upsample_nearest2d.default", (x, [36, 20])
    x = real(7, 5, 3, 2)
    for kind in ("nearest", "bilinear", "bicubic"):
        corners = () if kind == "nearest" else (False,)
        yield f"upsample_{kind}2d.default", (x, [6, 4], *corners)
        yield f"upsample_{kind}2d.vec", (x, [6, 4], *corners, None)
        yield f"upsample_{kind}2d_backward.default", (real(7, 5, 6, 4), [6, 4], [7, 5, 3, 2], *corners)


def _recurrent():
    sizes = ((7, 5, 3), (16, 3), (16, 4), (16,), (16,), (5, 4), (5, 4))
    operands = [real(*size).float() for size in sizes]
    options = (False, [], 2, 4, 1, True, False, False, True)
    out, hidden, cell, space = torch.ops.aten.mkldnn_rnn_layer(*operands, *options)
    yield "mkldnn_rnn_layer.default", (*operands, *options)
    rest = (out, hidden, cell, real(7, 5, 4).float(), None, None)
    options = (False, 2, 4, 1, True, True, False, [], False)
    yield "mkldnn_rnn_layer_backward.default", (*operands, *rest, *options, space)


def _elementwise():
    x, y = real(7, 5, 3), real(7, 1, 3)
    both = "add sub mul div subtract multiply divide true_divide"
    for name in both.split():
        yield f"{name}.Tensor", (x, y)
        yield f"{name}.Tensor", (x, 0.5)
    for name in ["add_", "sub_", "mul_", "div_", "subtract_", "multiply_"]:
        yield f"{name}.Tensor", (real(7, 5, 3), y)
    yield "rsub.Tensor", (x, y)
    for name in ["mul", "mul_", "multiply", "div", "div_", "divide", "true_divide"]:
        yield f"{name}.Scalar", (real(7, 5, 3), 0.5)
    names = "neg neg_ negative clone lift_fresh_copy alias_copy detach_copy _conj_physical _to_copy"
    for name in names.split():
        yield f"{name}.default", (real(7, 5, 3),)
    yield "_to_copy.default", (x,), {"dtype": torch.float32}
    for name in ("clamp", "clip", "clamp_", "clip_"):
        yield f"{name}.default", (real(7, 5, 3), 0.3, 0.6)
        yield f"{name}.Tensor", (real(7, 5, 3), y, None)
    for name in ("div", "divide", "div_", "divide_"):
        yield f"{name}.Tensor_mode", (real(7, 5, 3), y), {"rounding_mode": "floor"}
        yield f"{name}.Scalar_mode", (real(7, 5, 3), 0.3), {"rounding_mode": "trunc"}
    for name in ("round", "round_"):
        yield f"{name}.decimals", (real(7, 5, 3),), {"decimals": 1}
    for name in ("masked_fill", "masked_fill_"):
        yield f"{name}.Tensor", (real(7, 5, 3), y > 0.5, real())
    yield "copy.default", (x, y)
    yield "copy_.default", (real(7, 5, 3), y)
    backward = "hardsigmoid hardswish silu mish sigmoid tanh gelu"
    for name in backward.split():
        yield f"{name}_backward.default", (x, real(7, 5, 3))
    for name in ("hardshrink", "softshrink", "threshold"):
        yield f"{name}_backward.default", (x, real(7, 5, 3), 0.4)
    yield "hardtanh_backward.default", (x, real(7, 5, 3), -0.5, 0.5)
    yield "leaky_relu_backward.default", (x, real(7, 5, 3), 0.1, False)
    yield "elu_backward.default", (x, 1.0, 1.0, 1.0, False, real(7, 5, 3))
    yield "softplus_backward.default", (x, real(7, 5, 3), 1.0, 20.0)
    yield "log_sigmoid_backward.default", (x, real(7, 5, 3), real(7, 5, 3))
    yield "logit_backward.default", (x, real(7, 5, 3))
    yield "native_dropout_backward.default", (x, x > 0.5, 2.0)
    yield "native_dropout.default", (x, 0.3, False)
    yield "where.self", (x > 0.5, y, real(7, 5, 3))
    yield "to.device", (x, "cpu", torch.float32)
    yield "to.dtype", (x, torch.float32)
    yield "to.dtype_layout", (x,), {"dtype": torch.float32}
    yield "to.other", (x, real(2).to(torch.float32))
    yield "type_as.default", (x, real(2).to(torch.float32))


def _factories():
    yield from each("zeros.default ones.default", ([7, 5],))
    yield "full.default", ([7, 5], 0.5)
    yield from each("new_zeros.default new_ones.default", (real(2), [7, 5]))
    yield "new_full.default", (real(2), [7, 5], 0.5)
    yield from each("zeros_like.default ones_like.default", (real(7, 5),))
    yield "full_like.default", (real(7, 5), 0.5)


def samples():
    """(name without its namespace, positional arguments, keyword arguments)."""
    families = (
        _views,
        _contractions,
        _convolutions,
        _attention,
        _reductions,
        _norms,
        _losses,
        _gathers,
        _pools,
    )
    for family in (*families, _recurrent, _elementwise, _factories):
        for name, args, *kwargs in family():
            yield name, args, kwargs[0] if kwargs else {}
