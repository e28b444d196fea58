"""Gradients for which PyTorch takes another formula in a trace than in eager.

Its derivative formulas ask whether a tensor is a plain one. Where they are told that it is not, they leave out a
shortcut for the usual case, such as a product without zeros, or they make another tensor where eager overwrites one and
so rounds to the dtype of that. The result is the same but for its last bits. Of PyTorch's formulas with such a question,
these are the ones whose bits differ; `tests/frontends/kernels/test_branching_gradients.py` looks through the others. Eager's
formula is taken where it looks at dtypes only. Where it looks at the numbers, the gradient is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.recording.recording import Notes, Record, Recording

aten = torch.ops.aten
_Gradients = tuple[torch.Tensor | None, ...]

_SHORTCUT = (
    "in eager PyTorch looks at the numbers and takes a shortcut in the usual case; in a trace it never does, and "
    "the last bits differ"
)
_IN_PLACE = "in eager PyTorch overwrites a tensor and rounds to its dtype; in a trace it makes another one"
_ONE_DTYPE = "give both the same dtype (target.to(x.dtype)), or detach the target"
_ARITHMETIC = frozenset({aten.sigmoid, aten.sub, aten.mul, aten.add, aten._to_copy})  # noqa: SLF001


class _Branch(NamedTuple):
    """What is known of the derivative of an operation.

    Attributes:
        forward: the operation.
        differs: by node, gradients that the trace made, and gradients that it was given: whether eager takes another
            formula, which the trace cannot take.
        instead: what to write.
        why: what eager does.
        formula: by the same: eager's gradients, where a trace can make them.
    """

    forward: Any
    differs: Callable[[Any, _Gradients, _Gradients], bool]
    instead: str
    why: str = _SHORTCUT
    formula: Callable[[Any, _Gradients, _Gradients], _Gradients] | None = None


def _always(*_: Any) -> bool:
    return True


def _twice(*_: Any) -> bool:
    """Whether the gradient will be differentiated itself."""
    return torch.is_grad_enabled()


def _saved(node: Any) -> list[Any]:
    return [getattr(node, f"_saved_{name}", None) for name in ("self", "target", "weight", "pos_weight")]


def _of_mixed_target(node: Any, made: _Gradients, given: _Gradients) -> bool:
    """Whether a target gets a gradient that eager makes in the dtype of one operand among others."""
    dtypes = {tensor.dtype for tensor in (*_saved(node), *given) if tensor is not None}
    return made[1] is not None and len(dtypes) > 1


def _gradient_of_logits(node: Any, made: _Gradients, given: _Gradients) -> _Gradients:
    """What eager does for `binary_cross_entropy_with_logits`: all in place, in the dtype that the first step has."""
    logits, target, weight, positive = _saved(node)
    if (
        made[0] is None or given[0] is None or torch.is_grad_enabled()
    ):  # in grad mode eager does as a trace does
        return made
    if positive is None:
        gradient = logits.sigmoid().sub_(target)
    else:
        scaled = positive.mul(target)
        gradient = scaled.add(1).sub_(target).mul_(logits.sigmoid()).sub_(scaled)
    gradient = gradient.mul_(given[0])
    if weight is not None:
        gradient = gradient.mul_(weight)
    if node._saved_reduction == 1:  # noqa: SLF001 - the mean
        gradient = gradient.div_(logits.numel())
    return (gradient.to(logits.dtype), *made[1:])


BRANCHING: Mapping[str, _Branch] = {
    "ProdBackward0": _Branch(
        aten.prod.default, _always, "take exp of the sum of logarithms, or multiply one by one"
    ),
    "ProdBackward1": _Branch(
        aten.prod.dim_int, _always, "take exp of the sum of logarithms, or multiply slice by slice"
    ),
    "MaskedFillBackward1": _Branch(
        aten.masked_fill.Tensor,
        lambda _node, made, _given: made[1] is not None,
        "choose with torch.where(mask, value, x)",
    ),
    "CumprodBackward0": _Branch(
        aten.cumprod.default, _twice if torch.__version__ >= "2.13" else _always, "multiply slice by slice"
    ),
    "LinalgDetBackward0": _Branch(
        aten._linalg_det.default,  # noqa: SLF001
        _twice,
        "take sign * logabsdet.exp() of torch.linalg.slogdet",
    ),
    "BinaryCrossEntropyBackward0": _Branch(
        aten.binary_cross_entropy.default, _of_mixed_target, _ONE_DTYPE, _IN_PLACE
    ),
    "BinaryCrossEntropyWithLogitsBackward0": _Branch(
        aten.binary_cross_entropy_with_logits.default,
        _of_mixed_target,
        _ONE_DTYPE,
        _IN_PLACE,
        _gradient_of_logits,
    ),
}
"""By the name of the autograd node."""


def gradients_of_eager(
    notes: Notes, number: int, node: Any, made: _Gradients, given: _Gradients
) -> _Gradients | None:
    """Hook after the `number`-th node, one of `BRANCHING`: its gradients as eager makes them, or a note that there are none.

    `made` are the gradients that it gave, `given` those that it was given.
    """
    branch = BRANCHING[node.name()]
    if branch.differs(node, made, given):
        notes.branched[number] = node.name()
    if branch.formula is None:
        return None
    notes.replaced.add(number)
    return branch.formula(node, made, given)


def take_eagers_gradients(recording: Recording, notes: Notes) -> None:
    """Take out what autograd's own formulas recorded where eager's was recorded after them. O(records)."""
    for number, name in notes.branched.items():
        branch = BRANCHING[name]
        records = [record for record in recording.records if record.sequence == number]
        origin = next((record for record in records if record.target is branch.forward), records[0])
        forward = branch.forward._schema.name.removeprefix("aten::").lstrip("_")  # noqa: SLF001 - it has no public name
        raise CaptureError(
            f"the gradient of {forward} depends on more than a trace can follow",
            where=None if origin.line is None else origin.line.location,
            why=branch.why,
            next_step=branch.instead,
        )
    if not notes.replaced:
        return
    users = recording.users()
    dead: set[Record] = set()
    for record in reversed(recording.records):
        if _is_of_formula(record, notes) and dead.issuperset(users.get(record, ())):
            dead.add(record)
    recording.records[:] = [record for record in recording.records if record not in dead]


def _is_of_formula(record: Any, notes: Notes) -> bool:
    """Whether a replaced formula may have recorded it: arithmetic on nothing but what the formula made itself."""
    if not isinstance(record, Record) or record.sequence not in notes.replaced:
        return False
    if record.kind != "call" or record.phase != "backward":
        return False
    if record.target is aten.div_.Scalar or record.target is aten.div_.Tensor:
        return _is_of_formula(record.args[0], notes)
    return getattr(record.target, "overloadpacket", None) in _ARITHMETIC
