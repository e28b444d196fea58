"""What a policy of points promises, of every one in `planner.points.choices.decide.POLICIES`."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.planner.points.choices.decide import POLICIES, policy
from neaptide.planner.points.choices.situation import Priced, Situation
from neaptide.planner.points.plan import Decisions
from neaptide.planner.points.search import Search
from planner.points.test_decisions import STEP, lengths
from support.drawn import examples
from support.together import together


@together("name", POLICIES)
def test_the_same_is_decided_again_and_nothing_where_all_fits(name):
    for sizes in ({"B": 3, "T": 17}, {"B": 2, "T": 40}):
        found = STEP.shaped.at(sizes)
        situation = Situation(STEP.shaped, STEP.candidates, found, found.peak_bytes * 7 // 10)
        first, second = (policy(name)(situation) for _ in range(2))
        assert (first.evictions, first.peak_bytes, first.repeated) == (
            second.evictions,
            second.peak_bytes,
            second.repeated,
        )
        assert first.peak_bytes <= found.peak_bytes
        whole = policy(name)(Situation(STEP.shaped, STEP.candidates, found, found.peak_bytes))
        assert (whole.evictions, whole.repeated) == ((), ())


def seconds_of(sizes, script):
    return sum(sizes.repeat_seconds[n] for n in script.repeated)


def dropping(search, numbers):
    """A search, and all others in which some of what comes back early is dropped again, up to any use of another."""
    if not numbers:
        yield search
        return
    first, *others = numbers
    yield from dropping(search, others)
    if first in search.early:
        end = search.candidates[first].end
        for until in {end, *(search.back[n] for n in search.chosen if search.back[n] < end)}:
            changed = search.copy()
            changed.drop_again(first)
            changed.until[first] = until
            changed.settle()
            yield from dropping(changed, others)


@settings(deadline=None, max_examples=examples(60))
@given(lengths, st.integers(55, 99))
def test_no_policy_beats_or_belies_exhaustive_search(sizes, share):
    found = STEP.shaped.at(sizes)
    budget = found.peak_bytes * share // 100
    largest = sorted(STEP.candidates, key=lambda c: -sum(found.storage_bytes[s] for s in c.storages))[:8]
    situation = Situation(STEP.shaped, largest, found, budget)
    priced = Priced(situation)
    least = None
    for count in range(len(largest) + 1):
        for chosen in combinations(range(len(largest)), count):
            search = Search(priced)
            for number in chosen:
                search.add(search.candidates.index(largest[number]))
            for other in dropping(search, list(chosen)):
                script = priced.writer.script(other.evictions())
                if script.peak_bytes <= budget:
                    seconds = seconds_of(found, script)
                    least = seconds if least is None else min(least, seconds)
    scripts = [decide(situation) for decide in POLICIES.values()]
    kept = [seconds_of(found, s) for s in scripts if s.peak_bytes <= budget]
    assert not kept or (least is not None and min(kept) >= least * (1 - 1e-9))
    if least is not None:
        assert seconds_of(found, scripts[0]) <= 2 * least + 1e-12
        assert scripts[0].peak_bytes <= budget


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None)
@given(sizes=lengths, share=st.integers(50, 100))
def test_everything_is_done_at_a_point(name, sizes, share):
    budget = STEP.shaped.at(sizes).peak_bytes * share // 100
    decision = Decisions(STEP, policy(name)).of(sizes, budget)
    assert set(decision.due) <= STEP.points
    middle = sorted(STEP.points)[len(STEP.points) // 2]
    gone = decision.script.gone_at(middle)
    again = Decisions(STEP, policy(name)).again(decision.sizes, budget * 9 // 10, middle, gone)
    assert {position for position in again.due if position >= middle} <= STEP.points


def test_names_are_spelled_in_two_ways_and_others_are_refused():
    assert all(policy(name.replace("_", "-")) is POLICIES[name] for name in POLICIES)
    with pytest.raises(UsageError, match="no way to evict is called 'oracle'"):
        policy("oracle")
