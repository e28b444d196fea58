import pytest

from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry
from neaptide.ops.table import in_place_names, meaning, overloads


def test_what_is_no_token_is_refused():
    with pytest.raises(ValueError, match="names no overload"):
        list(overloads("relu+tanh"))


def test_in_place_names_keep_their_overloads():
    names = [o.name for o in overloads(in_place_names("_foreach_add.List,Scalar _foreach_abs"))]
    assert names == ["aten._foreach_add_.List", "aten._foreach_add_.Scalar", "aten._foreach_abs_.default"]


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two rows"):
        OpRegistry([*meaning()("relu"), *meaning()("relu")])


def test_registry_covers_all_namespaces():
    namespaces = {row.name.partition(".")[0] for row in registry()}
    assert namespaces == {"aten", "neaptide", "host"}
    assert len(registry()) > 2000


def test_views_and_metadata_move_no_bytes(call_of):
    torch = pytest.importorskip("torch")
    x = torch.empty(4, 6, device="meta")
    for op, args in (
        (torch.ops.aten.view.default, (x, [24])),
        (torch.ops.aten.t.default, (x,)),
        (torch.ops.aten.expand.default, (x[:1], [4, 6])),
        (torch.ops.aten.detach.default, (x,)),
        (torch.ops.aten.empty_like.default, (x,)),
    ):
        row = registry().require(str(op))
        assert row.bytes_moved(call_of(op, *args)).evaluate() == 0
        assert row.flops(call_of(op, *args)).evaluate() == 0
