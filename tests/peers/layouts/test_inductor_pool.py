import random

from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide_peers.layouts.inductor_pool import place_inductor

# The tree in plain nested lists, without anything kept: a leaf is ("buffer", index), a split ("split", left, right),
# a slot a list [fixed size or None, contents]. Sizes and lifetimes are looked up again each time.


def size_of(slot, sizes):
    return max([slot[0], *(size_of_content(c, sizes) for c in slot[1])])


def size_of_content(content, sizes):
    if content[0] == "buffer":
        return sizes[content[1]]
    return size_of(content[1], sizes) + size_of(content[2], sizes)


def members(content):
    if content[0] == "buffer":
        return [content[1]]
    return [m for slot in content[1:] for c in slot[1] for m in members(c)]


def allocate(slot, index, problem, sizes, is_last):
    size = size_of(slot, sizes)
    if not is_last and sizes[index] > size:
        return False
    b = problem.buffers
    met = [
        c for c in slot[1] if any(b[m].start < b[index].end and b[m].end > b[index].start for m in members(c))
    ]
    if len(met) > 1 or (met and met[0][0] == "buffer"):
        return False
    if met:
        _, left, right = met[0]
        return allocate(left, index, problem, sizes, False) or allocate(right, index, problem, sizes, is_last)
    leaf = ("buffer", index)
    if size > sizes[index]:
        leaf = ("split", [0, [leaf]], [size - sizes[index], []])
    elif size < sizes[index]:
        slot[1] = [("split", [size, [c]], [sizes[index] - size, []]) for c in slot[1]]
    slot[1].append(leaf)
    return True


def offsets_of(slot, at, sizes, offsets):
    for content in slot[1]:
        if content[0] == "buffer":
            offsets[content[1]] = at
        else:
            offsets_of(content[1], at, sizes, offsets)
            offsets_of(content[2], at + size_of(content[1], sizes), sizes, offsets)


def place_by_words(problem):
    sizes = [b.nbytes for b in problem.buffers]
    root = None
    for index in sorted(
        range(len(sizes)), key=lambda i: (-sizes[i], problem.buffers[i].start - problem.buffers[i].end)
    ):
        if root is None:
            root = [0, [("buffer", index)]]
        elif not allocate(root, index, problem, sizes, True):
            root = [0, [("split", root, [0, [("buffer", index)]])]]
    offsets = {}
    offsets_of(root, 0, sizes, offsets)
    return tuple(offsets[index] for index in range(len(sizes)))


@given(st.integers(0, 10**9), st.sampled_from((3, 12, 40)))
def test_the_pool_is_the_one_of_the_plain_tree(seed, most):
    for step in range(4):
        problem = random_problem(f"{seed}.{step}", most, alignments=(1,), fixed=False, gaps=False)
        layout = place_inductor(problem)
        assert layout.offsets == place_by_words(problem)
        check_layout(problem, layout)


def test_short_lives_beside_long_ones_join_and_split_slots():
    rng = random.Random(3)
    for _ in range(200):
        steps = rng.choice((6, 12, 40))
        buffers = []
        for index in range(rng.randint(2, 25)):
            start = rng.randrange(steps)
            end = min(steps, start + rng.choice((1, 1, 2, steps)))
            buffers.append(Buffer(f"b{index}", start, end, rng.randint(1, 20)))
        problem = LayoutProblem(tuple(buffers))
        assert place_inductor(problem).offsets == place_by_words(problem)


def test_a_buffer_goes_into_what_another_leaves():
    problem = LayoutProblem(
        (Buffer("a", 0, 2, 9), Buffer("b", 2, 4, 5), Buffer("c", 3, 4, 4), Buffer("d", 0, 4, 2))
    )
    assert place_inductor(problem).offsets == (0, 0, 5, 9)
