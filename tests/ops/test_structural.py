import importlib
import math
import operator

import pytest

from neaptide.ir.nodes import LOOP_OP
from neaptide.ir.registry import Trait
from neaptide.ops import registry
from neaptide.ops.structural import HOST_FUNCTIONS, HOST_OPS
from support.together import together


def _qualified(function):
    return f"{function.__module__}.{getattr(function, '__qualname__', function.__name__)}"


def test_names_are_one_to_one():
    assert len(HOST_FUNCTIONS) == len(HOST_OPS)
    assert all(HOST_OPS[HOST_FUNCTIONS[op]] == op for op in HOST_FUNCTIONS)


def test_every_function_exists():
    pytest.importorskip("torch")
    for function in HOST_OPS:
        module, _, name = function.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))


@together(
    ("function", "op"),
    [
        (operator.mul, "host.mul"),
        (operator.not_, "host.not"),
        (math.sqrt, "host.math_sqrt"),
        (round, "host.builtin_round"),
    ],
)
def test_functions_are_found_by_their_qualified_name(function, op):
    assert HOST_OPS[_qualified(function)] == op


def test_symbolic_number_methods_have_names():
    """Everything that PyTorch's symbolic numbers can record, but for the one that is a lambda."""
    sym_node = pytest.importorskip("torch.fx.experimental.sym_node")
    functions = {
        _qualified(sym_node.method_to_operator(m)) for m in sym_node.magic_methods if m != "is_integer"
    }
    assert functions <= set(HOST_OPS)


def test_rows_are_pure_host_scalars():
    for op in HOST_FUNCTIONS:
        row = registry().require(op)
        assert row.is_a(Trait.HOST_SCALAR)
        assert not row.host
        assert not row.writes
    assert registry().require(LOOP_OP).traits == frozenset()
