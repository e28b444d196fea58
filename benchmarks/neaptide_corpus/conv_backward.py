"""Differentiates convolutional networks that are ordering problems: appends backward ops and an SGD update.

Operands are those that the backward kernels read (gradient, saved input, saved statistics or indices), not what a
framework happens to keep. Views of gradients are no operations. A convolution's input and weight gradient come from
one operation, a dense layer's from two, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from neaptide_corpus.conv_forms import ConvForm, FeatureMap, Layer
from neaptide_corpus.order_forms import OrderForm

_FLOAT_BYTES: Final = 4


class Update(StrEnum):
    """What the optimizer does with a weight gradient.

    `NONE`: gradients are results of the step. `IN_PLACE`: one op consumes the gradient and changes the weight.
    `FUNCTIONAL`: a scaled gradient, then a new weight, which is a result of the step (a traced `w - lr * g`).
    """

    NONE = "none"
    IN_PLACE = "in_place"
    FUNCTIONAL = "functional"


class Backward:
    """Walks a network's layers backwards and appends what differentiates them."""

    def __init__(self, net: ConvForm, update: Update) -> None:
        self._form = net.form
        self._layers = tuple(net.layers)
        self._update = update
        self._gradients: dict[str, list[str]] = {}  # of a map's storage: the terms of its gradient
        self._nbytes: dict[str, int] = {}  # of the storages made here
        self._weight_gradients: list[tuple[str, int]] = []

    def finish(self, logits: FeatureMap) -> OrderForm:
        """The step with a softmax cross-entropy loss on the logits."""
        log_softmax = self._op("log_softmax", [logits.storage], [logits.nbytes])[0]
        loss = self._op("nll_loss", [log_softmax], [_FLOAT_BYTES])[0]
        seed = self._op("nll_loss_backward", [], [logits.nbytes], after=[self._form.last_op()])[0]
        made = self._op("log_softmax_backward", [seed, log_softmax], [logits.nbytes], over=seed)[0]
        self._gradients[logits.storage] = [made]
        differentiable = {layer.made.storage for layer in self._layers}
        for layer in reversed(self._layers):
            self._differentiate(layer, differentiable)
        self._form.keep(loss, *self._updates())
        return self._form.finish()

    def _differentiate(self, layer: Layer, differentiable: set[str]) -> None:
        gradient = self._gradient_of(layer.made)
        wanted = [x for x in layer.operands if x.storage in differentiable]
        if layer.kind in _PASSED_ON:
            for operand in wanted:
                self._gradients.setdefault(operand.storage, []).append(gradient)
            wanted = []
        saved = _SAVED.get(layer.kind, _nothing)(layer)
        if layer.kind == "dense":  # two matrix products, each of which reads what it needs
            self._append(layer, gradient, (), wanted, 0)
            self._append(layer, gradient, saved, [], layer.parameter_bytes)
        else:
            self._append(layer, gradient, saved, wanted, layer.parameter_bytes)

    def _append(
        self,
        layer: Layer,
        gradient: str,
        saved: Sequence[str],
        wanted: Sequence[FeatureMap],
        parameter_bytes: int,
    ) -> None:
        """One op that makes the gradients of some operands and, if it has bytes, of the weights."""
        sizes = [x.nbytes for x in wanted]
        if parameter_bytes:
            sizes.append(parameter_bytes)
        if not sizes:
            return
        over = gradient if layer.kind == "relu" else None
        made = self._op(f"{layer.kind}_backward", [gradient, *saved], sizes, over=over)
        for operand, storage in zip(wanted, made, strict=False):
            self._gradients.setdefault(operand.storage, []).append(storage)
        if parameter_bytes:
            self._weight_gradients.append((made[-1], parameter_bytes))

    def _gradient_of(self, x: FeatureMap) -> str:
        """The storage with the whole gradient of a map; appends the additions."""
        total, *others = self._gradients.pop(x.storage)
        for other in others:
            total = self._op("accumulate", [total, other], [x.nbytes], over=total)[0]
        return total

    def _op(
        self,
        kind: str,
        reads: Sequence[str],
        sizes: Sequence[int],
        *,
        over: str | None = None,
        after: Sequence[str] = (),
    ) -> list[str]:
        """Append an op; its first result may take over the bytes of `over` where both have the same size."""
        in_place = [(0, over)] if over is not None and self._nbytes[over] == sizes[0] else []
        made = self._form.op(kind, reads=reads, sizes=sizes, in_place=in_place, after=after)
        self._nbytes.update(zip(made, sizes, strict=True))
        return made

    def _updates(self) -> list[str]:
        """Appends the optimizer; returns what of it the caller keeps."""
        if self._update is Update.NONE:
            return [storage for storage, _ in self._weight_gradients]
        kept: list[str] = []
        for gradient, nbytes in self._weight_gradients:
            if self._update is Update.IN_PLACE:
                self._form.op("sgd", reads=[gradient])
                continue
            scaled = self._form.op("sgd_scale", reads=[gradient], sizes=[nbytes])
            kept += self._form.op("sgd_step", reads=scaled, sizes=[nbytes])
        return kept


def _nothing(_layer: Layer) -> Sequence[str]:
    return ()


def _input(layer: Layer) -> Sequence[str]:
    return [x.storage for x in layer.operands]


_PASSED_ON: Final = frozenset({"add", "bias", "concat"})
"""Kinds whose operands' gradients are the result's, or parts of it: views, no operations."""

_SAVED: Final[Mapping[str, Callable[[Layer], Sequence[str]]]] = MappingProxyType(
    {
        "conv": _input,
        "depthwise": _input,
        "pointwise": _input,
        "dense": _input,
        "matvec": _input,
        "batch_norm": lambda layer: [*_input(layer), *layer.extra],
        "relu": lambda layer: [layer.made.storage],
        "max_pool": lambda layer: layer.extra,
    }
)
"""What of the forward pass a backward kernel reads."""
