import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from order_problem_edits import fission, fuse, recompute, split
from peers.incremental.random_order_edits import EDIT_KINDS, random_edit
from schedule.order.order_problems import literal_bytes, random_problem
from support.drawn import examples


def chain(*sizes):
    """Ops in a row, each reading what the one before it made; the last result is kept."""
    storages = tuple(OrderStorage(f"t{k}", size, output=k == len(sizes) - 1) for k, size in enumerate(sizes))
    ops = tuple(OrderOp(f"op{k}", (k - 1,) if k else (), (k,)) for k in range(len(sizes)))
    return OrderProblem(storages, ops)


@given(st.integers(0, 10**6), st.integers(2, 20), st.booleans(), st.sampled_from(EDIT_KINDS))
@settings(max_examples=examples(200), deadline=None)
def test_an_edit_touches_only_what_it_says(seed, n, mutation, kind):
    problem = random_problem(seed, n, in_place=True, mutation=mutation)
    edit = random_edit(problem, kind, random.Random(seed))
    assume(edit is not None)
    after = edit.problem
    assert after.storages[: len(problem.storages)] == problem.storages
    assert len(edit.now_at) == n
    kept = [now for now in edit.now_at if now is not None]
    assert sorted(set(kept)) == kept
    assert {*kept, *edit.changed} == set(range(after.op_count))
    for op, now in enumerate(edit.now_at):
        if now is not None and now not in edit.changed:
            before = problem.ops[op]
            same = after.ops[now]
            assert (same.reads, same.writes, same.workspace) == (
                before.reads,
                before.writes,
                before.workspace,
            )
    order = tuple(range(after.op_count))
    assert list(evaluate_order(after, order).bytes_at) == literal_bytes(after, order)


def test_edits_that_do_not_apply_are_none():
    problem = chain(4, 8, 2)
    assert recompute(problem, 0) is None  # one reader
    assert fuse(problem, 2) is None  # an output
    assert split(problem, 0) is None  # reads nothing
    assert fission(problem, (0, 2), 2) is None  # no chain
    overwritten = OrderProblem(
        (*problem.storages, OrderStorage("u", 1, output=True)),
        (
            *problem.ops[:2],
            OrderOp("change", (0,), (0,)),
            OrderOp("late", (1,), (2,)),
            OrderOp("more", (0,), (3,)),
        ),
    )
    assert fuse(overwritten, 1) is None  # what the first op reads has changed by then
