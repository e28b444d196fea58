from __future__ import annotations

import math
import random
from functools import cache

from chain_play import revolve_costs, rotor_costs
from neaptide.planner.recompute.chain.program import ChainProgram
from neaptide_peers.strategies.revolve import least_runs
from together import together


@together("length", [1, 2, 5, 9, 14])
@together("places", [1, 2, 3, 5])
def test_without_tapes_it_is_the_binomial_optimum(length, places):
    # The input has a place; the state that runs forward has none there, but one in the program.
    program = ChainProgram(revolve_costs(length), places, slots=places)
    # All blocks but the last run forward a first time, which costs nothing in the program.
    assert program.seconds(places) == least_runs(length, places) - (length - 1)


def published(forward_s, tape, entering, room):
    """Least seconds run again by the recurrence of rotor, over all states, in whole bytes."""

    @cache
    def least(m, a, b):
        is_first = b == len(forward_s) - 1
        run = 0.0 if is_first else forward_s[a]
        best = math.inf
        if a == b:
            return run if tape[a] <= m else best
        if tape[a] <= m:
            best = run + least(m - tape[a], a + 1, b)
        for cut in range(a + 1, b + 1):
            if entering[cut] <= m:
                runs = 0.0 if is_first else sum(forward_s[a:cut])
                best = min(best, runs + least(m - entering[cut], cut, b) + least(m, a, cut - 1))
        return best

    return least(room, 0, len(forward_s) - 1)


@together("seed", range(20))
def test_with_one_option_it_is_the_published_recurrence(seed):
    draw = random.Random(seed)
    length = draw.randint(2, 7)
    entering = [0] + [draw.randint(1, 4) for _ in range(length - 1)]
    tape = [draw.randint(1, 6) + (entering[i + 1] if i + 1 < length else 0) for i in range(length)]
    forward_s = [float(draw.randint(1, 9)) for _ in range(length)]
    most = sum(tape)
    program = ChainProgram(rotor_costs(forward_s, tape, entering), most, slots=most)
    for room in range(most + 1):
        assert program.seconds(room) == published(tuple(forward_s), tuple(tape), tuple(entering), room)


@together("seed", range(10))
def test_fewer_slots_never_promise_more(seed):
    draw = random.Random(seed)
    length = 6
    entering = [0] + [draw.randint(10, 40) for _ in range(length - 1)]
    tape = [draw.randint(30, 90) + (entering[i + 1] if i + 1 < length else 0) for i in range(length)]
    costs = rotor_costs([float(draw.randint(1, 9)) for _ in range(length)], tape, entering)
    most = sum(tape)
    exact, coarse = ChainProgram(costs, most, slots=most), ChainProgram(costs, most, slots=40)
    for room in range(0, most + 1, 17):
        assert coarse.seconds(room) >= exact.seconds(room)


def test_a_plan_of_much_room_holds_every_tape_and_one_of_little_cuts():
    length = 8
    costs = rotor_costs([1.0] * length, [3] * length, [0] + [1] * (length - 1))
    program = ChainProgram(costs, 3 * length, slots=3 * length)
    rich = program.plan(3 * length)
    assert [hold.block for hold in rich if hold.option == 0] == list(range(length))
    assert all(hold.first == length - 1 and hold.last == hold.block for hold in rich)
    poor = program.plan(6)
    assert {hold.option for hold in poor if hold.first == length - 1} > {None}
    # What is made again for a backward is there only for those behind it.
    assert any(hold.first < length - 1 for hold in poor)
    assert program.plan(2) is None
    assert program.seconds(2) == math.inf
    assert program.seconds(-1) == math.inf
