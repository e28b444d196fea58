"""Random edits of ordering problems."""

import random

from neaptide.schedule.order.problem import OrderProblem
from neaptide_peers.incremental.edit import Edit
from order_problem_edits import fission, fuse, recompute, split

EDIT_KINDS = ("fuse", "split", "rewrite", "recompute", "fission")


def random_edit(problem: OrderProblem, kind: str, rng: random.Random) -> Edit | None:
    """An edit somewhere in a problem; None where nothing takes one."""
    for _ in range(200 if problem.storages else 0):
        storage, op = rng.randrange(len(problem.storages)), rng.randrange(problem.op_count)
        if kind == "recompute":
            found = recompute(problem, storage)
        elif kind == "fission":
            found = fission(problem, _chain(problem, op, rng.randint(1, 3)), rng.choice((2, 3)))
        elif kind == "fuse" or (kind == "rewrite" and rng.random() < 0.5):
            found = fuse(problem, storage)
        else:
            found = split(problem, op)
        if found is not None:
            return found
    return None


def _chain(problem: OrderProblem, op: int, length: int) -> list[int]:
    chain = [op]
    while len(chain) < length:
        writes = problem.ops[chain[-1]].writes
        accessors = problem.accessors[writes[0]] if len(writes) == 1 else ()
        if len(accessors) != 2 or accessors[0] != chain[-1]:
            break
        chain.append(accessors[1])
    return chain
