import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ops import registry
from neaptide.ops.table import in_place_names, meaning, overloads
from together import together

_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda name: name != "out")


@given(st.lists(st.tuples(_NAMES, st.lists(_NAMES, min_size=1, max_size=3)), max_size=5))
def test_overloads_are_listed_in_order(blocks):
    text = "\n".join(f"{base}.{','.join(names)}" for base, names in blocks)
    expected = [f"aten.{base}.{name}" for base, names in blocks for name in names]
    assert [o.name for o in overloads(text)] == expected


@together(
    ("text", "writes"),
    [
        ("relu.default", ()),
        ("relu_.default", (0,)),
        ("__and__.Tensor", ()),
        ("add.out", ("out",)),
        ("sum.IntList_out", ("out",)),
        ("topk.values=values+indices", ("values", "indices")),
        ("layout.default", ()),
    ],
)
def test_writes_follow_from_the_name(text, writes):
    assert [o.writes for o in overloads(text)] == [writes]


def test_what_is_no_token_is_refused():
    with pytest.raises(ValueError, match="names no overload"):
        list(overloads("relu+tanh"))


@together(
    ("text", "names"),
    [
        ("relu,out", "aten.relu.default aten.relu.out"),
        ("exp~", "aten.exp.default aten.exp.out aten.exp_.default"),
        ("eq~Scalar", "aten.eq.Scalar aten.eq.Scalar_out aten.eq_.Scalar"),
        (
            in_place_names("_foreach_add.List,Scalar _foreach_abs"),
            "aten._foreach_add_.List aten._foreach_add_.Scalar aten._foreach_abs_.default",
        ),
    ],
)
def test_short_forms(text, names):
    assert [o.name for o in overloads(text)] == names.split()


def test_explicit_writes_win_over_the_name():
    (row,) = meaning(Trait.UPDATE, writes=(0, 2))("_fused_adam_")
    assert row.writes == (0, 2)
    assert row.is_a(Trait.UPDATE)


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two rows"):
        OpRegistry([*meaning()("relu"), *meaning()("relu")])


def test_registry_covers_all_namespaces():
    namespaces = {row.name.partition(".")[0] for row in registry()}
    assert namespaces == {"aten", "prims", "mkldnn", "neaptide", "host"}
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
