from __future__ import annotations

import math
import random
from functools import cache

import pytest

from neaptide.planner.recompute.chain.program import ChainProgram
from neaptide_peers.strategies.pofo_program import OffloadChain, OffloadProgram
from planner.chain_play import rotor_costs
from support.together import together


def least_of_all(forward_s, backward_s, tape, entering, rate, budget):
    """Least seconds beyond every node once, by recursion over all choices of the model, with nothing left out."""
    last = len(forward_s) - 1

    @cache
    def again(room, a, b):
        if a == b:
            return forward_s[a] if tape[a] <= room else math.inf
        best = math.inf
        if tape[a] <= room:
            best = forward_s[a] + again(room - tape[a], a + 1, b)
        for cut in range(a + 1, b + 1):
            if entering[cut] <= room:
                rest = again(room - entering[cut], cut, b) + again(room, a, cut - 1)
                best = min(best, sum(forward_s[a:cut]) + rest)
        return best

    def ways(first, end, free, coming):
        """(seconds recomputed, bytes waited for in the backward, bytes held, bytes of the first run) of a stretch."""
        if end == first + 1:
            for extra, nbytes in ((0.0, tape[first]), (forward_s[first], entering[end])):
                over = max(tape[first] - free, 0.0)
                if over <= coming:
                    yield extra, over, nbytes, tape[first]
        need = max(entering[k] if k > first else 0 for k in range(first, end))
        for room in range(budget + 1):
            over = max(room - free, 0.0)
            if over <= coming and again(room, first, end - 1) < math.inf:
                yield again(room, first, end - 1), over, entering[end], need

    def go(block, held, own, going, coming):
        there = held + own
        above = max(there + going + (tape[block] if block == last else 0) - budget, 0.0)
        if block == last:
            left = max(going - above - rate * forward_s[last], 0.0)
            over = max(there + left + coming + tape[last] - budget, 0.0)
            # Both engines copy at the same rate; what is on its way out has to go first.
            fits = above <= going and over - min(over, left) <= coming
            return (above + over) / rate if fits else math.inf
        best = math.inf
        for end in range(block + 1, last + 1):
            for extra, over, nbytes, need in ways(block, end, budget - there - coming, coming):
                above = max(there + going + need - budget, 0.0)
                if above > going:
                    continue
                out = max(going - above - rate * sum(forward_s[block:end]), 0.0) + own
                back = max(coming - over - rate * (sum(backward_s[block:end]) + extra), 0.0) + own
                seconds = extra + (above + over) / rate
                if held + nbytes <= budget:
                    best = min(best, seconds + go(end, held + nbytes, 0, out, back))
                if held <= budget:
                    best = min(best, seconds + go(end, held, nbytes, out, back))
        return best

    return go(0, 0, 0, 0.0, 0.0)


def instance(seed):
    draw = random.Random(seed)
    length = draw.randint(2, 4)
    entering = [0] + [draw.randint(1, 4) for _ in range(length - 1)]
    tape = [draw.randint(1, 6) + (entering[i + 1] if i + 1 < length else 0) for i in range(length)]
    forward_s = tuple(float(draw.randint(1, 5)) for _ in range(length))
    backward_s = tuple(float(draw.randint(1, 9)) for _ in range(length))
    budget = draw.randint(max(tape), sum(tape))
    return forward_s, backward_s, tape, entering, draw.choice([0.5, 1.0, 3.0]), budget


def solved(forward_s, backward_s, tape, entering, rate, budget, **limits):
    costs = rotor_costs(forward_s, tape, entering)
    again = ChainProgram(costs, budget, slots=budget)
    chain = OffloadChain(costs, forward_s, backward_s, rate, rate)
    return OffloadProgram(chain, again, budget, **limits).solve()


@together("seed", range(30))
def test_it_is_the_best_of_all_choices_of_the_model(seed):
    asked = instance(seed)
    found = solved(*asked)
    assert (math.inf if found is None else found.seconds) == pytest.approx(least_of_all(*asked))


@together("seed", range(30, 40))
def test_with_few_labels_it_promises_no_more(seed):
    asked = instance(seed)
    found, exact = solved(*asked, most_labels=2), solved(*asked)
    if found is not None:
        assert found.seconds >= exact.seconds - 1e-9


def test_moves_cover_the_chain_and_wait_on_the_host_where_copies_are_free():
    forward_s, backward_s, tape, entering, _, _ = instance(3)
    budget = 2 * max(tape)
    found = solved(forward_s, backward_s, tape, entering, 1e9, budget)
    assert [move.first for move in found.moves] == [0, *(move.end for move in found.moves[:-1])]
    assert found.moves[-1].end == len(forward_s)
    assert found.seconds == pytest.approx(0.0, abs=1e-6)
    assert any(move.is_away for move in found.moves)
