import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ops import registry
from neaptide.ops.table import declare, overloads
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


def test_token_without_overload_is_refused():
    with pytest.raises(ValueError, match="names no overload"):
        list(overloads("relu"))


def test_explicit_writes_win_over_the_name():
    row = next(declare("_fused_adam_.default", Trait.UPDATE, writes=(0, 2)))
    assert row.writes == (0, 2)
    assert row.is_a(Trait.UPDATE)


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two rows"):
        OpRegistry([*declare("relu.default"), *declare("relu.default")])


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
