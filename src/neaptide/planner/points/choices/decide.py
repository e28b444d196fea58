"""Which candidates are evicted for one shape: a cover of the bytes that are too many, at the least seconds.

Each step takes the candidate that costs least for each byte and each position that it frees of those above the
budget. After it, what turned out not to be needed is put back, dearest first. The script that follows is played
exactly; where recomputation itself takes too many bytes, its position counts as above the budget and the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.errors import UsageError
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.choices.candidates import Candidate
from neaptide.planner.points.choices.covers import Score, cover
from neaptide.planner.points.choices.on_the_fly import HEURISTICS, Heuristic, on_the_fly
from neaptide.planner.points.choices.situation import Priced, Situation
from neaptide.planner.points.script import Script, Way
from neaptide.planner.points.search import Search
from neaptide.planner.points.shaped import ShapeSizes

_ROUNDS: Final = 8  # of searches, each with what the script of the one before took
_EXCHANGES: Final = 4  # evictions that are forbidden, one after another, to see whether others are better
_Choosing: TypeAlias = Callable[[Search], None]
_SCORES: Final[tuple[Score, ...]] = (
    lambda nbytes, positions: nbytes * positions,
    lambda nbytes, _positions: nbytes,
)
_COVERS: Final[tuple[_Choosing, ...]] = tuple(partial(cover, score=score) for score in _SCORES)
_APART: Final[tuple[_Choosing, ...]] = tuple(partial(cover, score=score, apart=True) for score in _SCORES)
_STAYING: Final[tuple[_Choosing, ...]] = tuple(
    partial(on_the_fly, heuristic=HEURISTICS[name], drops=False) for name in ("delta", "dtr_local")
)
_OTHERS: Final[tuple[_Choosing, ...]] = (*_APART, *_STAYING)


Policy: TypeAlias = Callable[[Situation], Script]
"""Decides: the script from a situation on; its peak is above the budget where nothing better was found."""


def least_cost_cover(situation: Situation) -> Script:
    """Cover what is above the budget by candidates of least cost: the best of covers by several scores and of those that
    are chosen on the fly, then exchanges: the dearest evictions are forbidden, one after another, and the search goes on.

    Where no cover keeps the budget and `situation.to_beat` is given, nothing else is tried.
    O(exchanges x evictions x (positions + candidates)).
    """
    priced = Priced(situation)
    is_kept = situation.to_beat is not None
    best = _Trial(priced, _COVERS[0], is_kept=is_kept)
    if best.rank == (0, 0.0):
        return best.script
    best = _best(best, _COVERS[1:])
    if situation.to_beat is not None and best.rank >= (0, situation.to_beat):
        return best.script
    return _exchanged(_best(best, _OTHERS)).script


def _best(best: _Trial, ways: Sequence[_Choosing]) -> _Trial:
    """The best of a trial and of new ones, as long as not enough has been tried."""
    for choose in ways:
        if best.priced.is_tired(keeps=best.keeps):
            break
        best = min(best, _Trial(best.priced, choose, is_kept=best.keeps), key=attrgetter("rank"))
    return best


def _exchanged(best: _Trial) -> _Trial:
    """A trial without its dearest evictions, where others are better."""
    tried = {number for number in best.search.chosen if best.search.candidates[number] in best.search.gone}
    for _ in range(_EXCHANGES):
        search = best.search
        open_ones = [number for number in search.chosen if number not in tried]
        if not open_ones or best.priced.is_tired(keeps=best.keeps):
            break
        dearest = max(open_ones, key=search.seconds_for)
        tried.add(dearest)
        best = min(
            (best, *(best.without(search.candidates[dearest], choose) for choose in _COVERS)),
            key=attrgetter("rank"),
        )
    return best


def script_rank(
    script: Script, sizes: ShapeSizes, budget_bytes: int, host: HostSpace | None
) -> tuple[int, float]:
    """How good a script is, less is better: bytes above the budget, then seconds of repetitions and copies."""
    spent = sum(sizes.repeat_seconds[node] for node in script.repeated)
    if host is not None:
        nbytes = sizes.storage_bytes
        for eviction in script.evictions:
            if eviction.way is Way.RELOAD:
                spent += sum(host.copy_seconds(nbytes[s]) for s in eviction.candidate.storages)
    return max(script.peak_bytes - budget_bytes, 0), spent


def decided_on_the_fly(situation: Situation, heuristic: Heuristic) -> Script:
    """What is evicted without a look ahead; see `on_the_fly`."""
    return _Trial(Priced(situation), partial(on_the_fly, heuristic=heuristic, drops=True)).script


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        "least_cost_cover": least_cost_cover,
        **{name: partial(decided_on_the_fly, heuristic=found) for name, found in HEURISTICS.items()},
    }
)
"""By name: one that looks ahead, and the heuristics of `on_the_fly`.

Each decides the same again, raises no peak, evicts nothing where all fits, and does everything at a point; none is better than
exhaustive search. `tests/planner/points/test_policy_conformance.py` holds each to this.
"""


def policy(name: str) -> Policy:
    """The policy of a name; hyphens and underscores are the same."""
    known = name.replace("-", "_")
    if known not in POLICIES:
        raise UsageError(
            f"no way to evict is called {name!r}", next_step=f"choose one of {', '.join(POLICIES)}"
        )
    return POLICIES[known]


class _Trial:
    """A search that goes on until its script keeps the budget, or nothing new is learned from one that does not.

    `is_kept` says that something else keeps the budget. The search ends where it is no better than `at_most`.
    """

    def __init__(
        self,
        priced: Priced,
        choose: _Choosing,
        search: Search | None = None,
        *,
        is_kept: bool = False,
        at_most: tuple[int, float] | None = None,
    ) -> None:
        situation = priced.situation
        self.priced = priced
        self.search = search = search or Search(priced)
        found: list[tuple[tuple[int, float], Script]] = []
        for _ in range(_ROUNDS):
            choose(search)
            script = priced.script(search.evictions())
            above, spent = script_rank(script, situation.sizes, situation.budget_bytes, situation.host)
            found.append(((above, spent), script))
            if not above or (at_most is not None and (0, spent) >= at_most) or priced.is_tired(keeps=is_kept):
                break
            if not search.learn(script):
                heaviest = priced.writer.heaviest(script, situation.budget_bytes)
                if heaviest is None or heaviest in priced.gone:
                    break
                self.search = search = search.afresh_without(heaviest)
        self.rank, self.script = min(found, key=itemgetter(0))
        if not self.rank[0] and search.until:
            self._stay_sooner()

    @property
    def keeps(self) -> bool:
        """Whether the script keeps the budget."""
        return not self.rank[0]

    def _stay_sooner(self) -> None:
        """Let what is dropped again stay from where there is room for it."""
        situation = self.priced.situation
        for _ in range(_ROUNDS):
            search = self.search.copy()
            if not search.stay_sooner(self.script):
                break
            script = self.priced.script(search.evictions())
            rank = script_rank(script, situation.sizes, situation.budget_bytes, situation.host)
            if rank >= self.rank:
                break
            self.rank, self.script, self.search = rank, script, search

    def without(self, candidate: Candidate, choose: _Choosing) -> _Trial:
        """Go on without a candidate."""
        search = self.search.copy()
        search.forbid(candidate)
        return _Trial(self.priced, choose, search, is_kept=self.keeps, at_most=self.rank)
