"""What shares bytes in C: windows, parts of joined results, results on top of operands. All compared with ONNX Runtime."""

import random
from pathlib import Path

import pytest

from lower.c import c_programs
from neaptide.lower.c.of_model import write_c
from support import onnx_cases

_CASES = {
    # Parts are made where they belong: nothing but the joined result and one operand is there.
    "rows_joined": (
        """g (float[1,4,8] x) => (float[1,8,8] y)
        { a = Relu(x) b = Sigmoid(x) y = Concat<axis=1>(a, b) }""",
        4 * (32 + 64),
    ),
    "columns_joined": (
        """g (float[4,8] x) => (float[4,16] y)
        { a = Neg(x) b = Sigmoid(x) y = Concat<axis=1>(a, b) }""",
        4 * (32 + 64),
    ),
    "joined_twice": (
        """g (float[1,2,4,4] x, float[2,2,3,3] w0, float[2,4,3,3] w1) => (float[1,6,4,4] y)
        { a = Conv<pads=[1,1,1,1]>(x, w0) b = Concat<axis=1>(x, a) c = Conv<pads=[1,1,1,1]>(b, w1)
          d = Relu(c) y = Concat<axis=1>(b, d) }""",
        4 * 16 * (2 + 6),
    ),
    # A row-major kernel makes the part: it is copied.
    "joined_from_a_row_major_kernel": (
        """g (float[4,8] x) => (float[4,16] y)
        { a = Softmax<axis=1>(x) b = Relu(a) c = Softmax<axis=1>(b) y = Concat<axis=1>(b, c) }""",
        None,
    ),
    "joined_with_itself": ("g (float[2,3] x) => (float[4,3] y) { a = Relu(x) y = Concat<axis=0>(a, a) }", None),
    "joined_and_used_later": (
        """g (float[2,3] x) => (float[2,6] y, float[2,3] z)
        { a = Relu(x) b = Neg(x) c = Concat<axis=1>(a, b) y = Sigmoid(c) z = Mul(a, b) }""",
        None,
    ),
    # A slice is a view for kernels that take strides, and a copy for the others.
    "window_of_columns": (
        """g (float[4,8] x, int64[2] s, int64[2] e) => (float[4,4] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] eight = {8}, int64[1] one = {1}>
        { a = Relu(x) b = Slice(a, zero, four, one) c = Slice(a, four, eight, one) y = Add(b, c) }""",
        None,
    ),
    "window_for_a_row_major_kernel": (
        """g (float[4,8] x) => (float[4,4] y)
        <int64[1] two = {2}, int64[1] six = {6}, int64[1] one = {1}>
        { a = Relu(x) b = Slice(a, two, six, one) y = Softmax<axis=1>(b) }""",
        None,
    ),
    "window_of_a_result_that_is_overwritten_later": (
        """g (float[4,8] x) => (float[4,8] y, float[4,4] z)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}>
        { a = Neg(x) b = Slice(a, zero, four, one) y = Exp(a) z = Neg(b) }""",
        None,
    ),
    "window_seen_as_another_shape": (
        """g (float[4,8] x) => (float[16] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}, int64[1] flat = {-1}>
        { a = Neg(x) b = Slice(a, zero, four, one) c = Reshape(b, flat) y = Neg(c) }""",
        None,
    ),
    "backwards": (
        """g (float[4,8] x) => (float[4,8] y)
        <int64[1] last = {-1}, int64[1] first = {-9}, int64[1] one = {1}, int64[1] back = {-1}>
        { a = Neg(x) b = Slice(a, last, first, one, back) y = Add(b, x) }""",
        None,
    ),
    "halves": (
        "g (float[4,8] x) => (float[4,4] y) { a = Neg(x) b, c = Split<axis=1, num_outputs=2>(a) y = Mul(b, c) }",
        None,
    ),
    # A chain of element-wise operators runs in one buffer, which is the input's.
    "in_place": (
        "g (float[4,8] x) => (float[4,8] y) { a = Relu(x) b = Neg(a) c = Add(b, b) y = Sigmoid(c) }",
        4 * 32,
    ),
    "in_place_under_another_shape": (
        """g (float[4,8] x) => (float[32] y) <int64[1] flat = {-1}>
        { a = Relu(x) b = Reshape(a, flat) y = Neg(b) }""",
        4 * 32,
    ),
    "moved_within_itself": (
        """g (float[3] x) => (float[3] y) <int64[3] to = {2, 0, 1}>
        { a = Neg(x) y = ScatterElements(a, to, a) }""",
        None,
    ),
    "operand_is_broadcast": ("g (float[4,8] x, float[8] z) => (float[4,8] y) { a = Relu(z) y = Sub(a, x) }", None),
    "result_is_an_input": ("g (float[3] x) => (float[3] y, float[3] z) { y = Identity(x) z = Neg(x) }", None),
    "result_is_a_weight": ("g (float[3] x, float[3] w) => (float[3] y, float[3] z) { y = Neg(w) z = Add(x, w) }", None),
    "nothing_is_left": (
        """g (float[3,4] x) => (float[0,4] y, float[3,4] z) <int64[1] zero = {0}>
        { y = Slice(x, zero, zero, zero) z = Neg(x) }""",
        None,
    ),
}  # fmt: skip


def test_what_shares_bytes_computes_the_same_in_the_expected_arena(tmp_path: Path) -> None:
    models = {name: onnx_cases.model_of(text, opset=18) for name, (text, _) in _CASES.items()}
    c_programs.compare(tmp_path, models)
    arenas = {name: write_c(onnx_cases.graph_of(_CASES[name][0], 18), name).arena_bytes[0] for name in models}
    wanted = {name: nbytes for name, (_, nbytes) in _CASES.items() if nbytes is not None}
    assert {name: arenas[name] for name in wanted} == wanted


def _random_text(seed: int) -> str:
    """A graph of joins, windows, element-wise operators, row-major kernels and convolutions on tensors of 4 by 6."""
    draw = random.Random(seed)
    values, lines, uses = ["x"], [], {"x": 0}
    for number in range(draw.randint(6, 12)):
        one, two = draw.choice(values), draw.choice(values[-3:])
        name, part = f"v{number}", f"p{number}"
        lines.append(
            draw.choice(
                [
                    f"{name} = Relu({one})",
                    f"{name} = Add({one}, {two})",
                    f"{name} = Softmax<axis=2>({one})",
                    f"{name} = Conv<pads=[1,1]>({one}, w)",
                    f"{part} = Concat<axis=2>({one}, {two}) {name} = Slice({part}, three, nine, axis)",
                    f"{part} = Concat<axis=1>({one}, {two}) {name} = Slice({part}, one, five, first)",
                    f"{part}, {part}b = Split<axis=2, num_outputs=2>({one}) {name} = Concat<axis=2>({part}b, {part})",
                    f"{part} = Transpose<perm=[0,2,1]>({one}) {name} = Reshape({part}, shape)",
                ]
            )
        )
        for used in (one, two):
            uses[used] += 1
        values.append(name)
        uses[name] = 0
    outputs = [value for value in values[1:] if not uses[value]]
    declared = ", ".join(f"float[1,4,6] {value}" for value in outputs)
    return f"""g (float[1,4,6] x, float[4,4,3] w) => ({declared})
        <int64[1] one = {{1}}, int64[1] three = {{3}}, int64[1] five = {{5}}, int64[1] nine = {{9}}, int64[1] axis = {{2}},
         int64[1] first = {{1}}, int64[3] shape = {{1, 4, 6}}>
        {{ {" ".join(lines)} }}"""


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 400), marks=pytest.mark.slow)])
def test_random_graphs_compute_the_same(seeds: range, tmp_path: Path) -> None:
    for first in range(seeds.start, seeds.stop, 16):
        models = {
            f"g{seed}": onnx_cases.model_of(_random_text(seed), 18) for seed in range(first, first + 16)
        }
        c_programs.compare(tmp_path, models)
