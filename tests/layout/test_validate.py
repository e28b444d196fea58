import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.errors import VerifyError
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout


def bytes_in_use(buffer, offset):
    """Every (step, byte) that a buffer uses, one by one."""
    used = set()
    for step in range(buffer.start, buffer.end):
        low, high = 0, buffer.nbytes
        for gap in buffer.gaps:
            if gap.start <= step < gap.end:
                low, high = gap.window or (0, 0)
        used |= {(step, offset + byte) for byte in range(low, high)}
    return used


@given(st.integers(0, 10**6))
def test_a_clash_is_found_exactly_when_two_buffers_use_a_byte_together(seed):
    problem = random_problem(seed, 6, steps=6, largest=4, alignments=(1,), fixed=False)
    draw = random.Random(seed)
    layout = Layout.of(problem, tuple(draw.randint(0, 6) for _ in problem.buffers))
    used = [bytes_in_use(*pair) for pair in zip(problem.buffers, layout.offsets, strict=True)]
    if len(set().union(*used)) == sum(map(len, used)):
        check_layout(problem, layout)
    else:
        with pytest.raises(VerifyError, match="clash at step"):
            check_layout(problem, layout)


def test_offsets_and_the_arena_are_checked():
    problem = LayoutProblem((Buffer("a", 0, 1, 3, 4), Buffer("b", 0, 1, 3, 4, offset=8)))
    check_layout(problem, Layout((0, 8), 11), capacity_bytes=11)
    for layout, words in [
        (Layout((0,), 3), "1 offsets for 2"),
        (Layout((2, 8), 11), "alignment"),
        (Layout((-4, 8), 11), "alignment"),
        (Layout((0, 4), 7), "fixed at 8"),
        (Layout((0, 8), 12), "its top is at 11"),
    ]:
        with pytest.raises(VerifyError, match=words):
            check_layout(problem, layout)
    with pytest.raises(VerifyError, match="capacity of 10"):
        check_layout(problem, Layout((0, 8), 11), capacity_bytes=10)
