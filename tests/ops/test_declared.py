from __future__ import annotations

import pytest

import neaptide
from neaptide.errors import UsageError
from neaptide.ops import declared, registry


@pytest.fixture(autouse=True)
def undeclared(monkeypatch):
    monkeypatch.setattr(declared, "_rows", {})


@pytest.mark.parametrize("name", ["mine::bend", "mine.bend", "mine::bend.default", "mine.bend.default"])
def test_a_declared_operator_has_a_row(name):
    assert registry().find("mine.bend.default") is None
    neaptide.declare_pure(name)
    row = registry().require("mine.bend.default")
    assert (row.writes, row.rng, row.host, row.deterministic) == ((), False, False, True)
    assert declared.is_declared("mine.bend.default")
    assert not declared.is_declared("aten.mm.default")


def test_another_overload_and_other_bits_on_every_run():
    neaptide.declare_pure("mine::sum.atomic", deterministic=False)
    assert not registry().require("mine.sum.atomic").deterministic
    neaptide.declare_pure("mine::sum.atomic")
    assert registry().require("mine.sum.atomic").deterministic, "the last word counts"


@pytest.mark.parametrize("name", ["bend", "", "a::b::c", "mine::bend me"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UsageError, match="names no operator"):
        neaptide.declare_pure(name)


def test_what_neaptide_knows_needs_no_declaration():
    with pytest.raises(UsageError, match="needs no declaration"):
        neaptide.declare_pure("aten::mm")
