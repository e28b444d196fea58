import random

from neaptide.analysis.dominators import entry_exit_pairs, immediate_dominators


def paths_avoid(before: list[list[int]], root: int, node: int, avoided: int) -> bool:
    if avoided in (root, node):
        return False
    stack, seen = [node], {node}
    while stack:
        for other in before[stack.pop()]:
            if other == root:
                return True
            if other != avoided and other not in seen:
                seen.add(other)
                stack.append(other)
    return False


def test_dominators_are_on_all_paths_and_nearest() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        count = rng.randint(2, 15)
        before = [[]] + [sorted(rng.sample(range(i), rng.randint(1, min(i, 3)))) for i in range(1, count)]
        found = immediate_dominators(range(count), before, 0)
        for node in range(1, count):
            strict = [d for d in range(node) if not paths_avoid(before, 0, node, d) and d != node]
            assert found[node] == max(strict)


def test_pairs_of_a_nested_fork_come_inner_first() -> None:
    after = [[1, 4], [2, 3], [5], [5], [6], [6], []]
    before = [[], [0], [1], [1], [0], [2, 3], [4, 5]]
    assert entry_exit_pairs(range(7), before, after) == [(1, 5), (0, 6)]
