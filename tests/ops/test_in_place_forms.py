"""Every form in which an operation works on top of an operand, held against PyTorch's schemas."""

import pytest

from neaptide.ops import registry
from neaptide.ops.in_place import in_place_form, listed
from together import together

torch = pytest.importorskip("torch")

# Their keyword belongs to an overload of another kind, so no plan has it.
WITHOUT = {"aten.max.other", "aten.min.other", "aten.huber_loss_backward.default"} | {
    "aten.xlogy.Tensor",
    "aten.xlogy.Scalar_Self",
}
FORMS = [
    (op, position, form)
    for op in listed()
    for position in registry().require(op).in_place
    if (form := in_place_form(registry(), op, position)) is not None
]


def schema_arguments(op):
    library, name, overload = op.split(".")
    operation = getattr(getattr(getattr(torch.ops, library), name), overload)
    return operation, [(a.name, str(a.type), a.kwarg_only) for a in operation._schema.arguments]


@together(("op", "position", "form"), FORMS, ids=str)
def test_it_takes_the_same_arguments_and_the_keyword(op, position, form):
    operation, arguments = schema_arguments(form.op)
    if form.keyword:
        assert torch.Tag.generated not in operation.tags
        assert (form.keyword, "Tensor", True) in arguments
        arguments.remove((form.keyword, "Tensor", True))
    else:
        assert position == 0
    assert arguments == schema_arguments(op)[1]


def test_only_known_operations_have_none():
    having = {op for op, _, _ in FORMS}
    assert set(listed()) - having <= WITHOUT


def test_what_no_table_knows_has_no_form():
    assert in_place_form(registry(), "aten.mm.default", 0) is None
    assert in_place_form(registry(), "nobody.knows.it", 0) is None
