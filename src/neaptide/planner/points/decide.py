"""Which candidates are evicted for one shape: a cover of the bytes that are too many, at the least seconds.

Each step takes the candidate that costs least for each byte and each position that it frees of those above the
budget. Behind it, what turned out not to be needed is put back, dearest first. The script that follows is played
exactly; where recomputation itself takes too many bytes, its position counts as above the budget and the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from neaptide.errors import UsageError
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.candidates import Candidate
from neaptide.planner.points.script import Script, Way
from neaptide.planner.points.search import Priced, Score, Search, Situation
from neaptide.planner.points.shaped import ShapeSizes

_ROUNDS: Final = 8  # of searches, each with what the script of the one before took
_NOTHING: Final[frozenset[Candidate]] = frozenset()

_Choosing: TypeAlias = Callable[[Search], None]
_SCORES: Final[tuple[Score, ...]] = (
    lambda nbytes, positions: nbytes * positions,
    lambda nbytes, _positions: nbytes,
)


class Policy(Protocol):
    """Decides."""

    def __call__(self, situation: Situation) -> Script:
        """The script from the situation on; its peak is above the budget where nothing better was found."""
        ...


def least_cost_cover(situation: Situation) -> Script:
    """Cover what is above the budget by candidates of least cost: the best of covers by several scores and of those that
    are chosen on the fly, then exchanges: the dearest evictions are forbidden, one after another.

    Where no cover keeps the budget and `situation.to_beat` is given, nothing else is tried.
    O(exchanges x evictions x (positions + candidates)).
    """
    ways: list[_Choosing] = [partial(Search.cover, score=score) for score in _SCORES]
    others: list[_Choosing] = [Search.by_bytes, Search.by_staleness]
    rank = partial(_rank, situation)
    priced = Priced(situation)
    best = _decide(priced, ways[0])
    if rank(best) == (0, 0.0):
        return best
    best = min((best, *(_decide(priced, choose) for choose in ways[1:])), key=rank)
    if situation.to_beat is not None and rank(best) >= (0, situation.to_beat):
        return best
    best = min((best, *(_decide(priced, choose) for choose in others)), key=rank)
    forbidden, tried = _NOTHING, {eviction.candidate for eviction in situation.gone}
    for _ in range(situation.most_exchanges):
        open_ones = [e.candidate for e in best.evictions if e.candidate not in tried]
        if not open_ones:
            break
        dearest = max(open_ones, key=partial(_seconds_again, situation))
        tried.add(dearest)
        without = forbidden | {dearest}
        other = min((_decide(priced, choose, without) for choose in ways), key=rank)
        if rank(other) < rank(best):
            best, forbidden = other, without
    return best


def _seconds_again(situation: Situation, candidate: Candidate) -> float:
    return sum(situation.sizes.repeat_seconds[node] for node in candidate.again)


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


def _rank(situation: Situation, script: Script) -> tuple[int, float]:
    return script_rank(script, situation.sizes, situation.budget_bytes, situation.host)


def delta(situation: Situation) -> Script:
    """Decide as DELTA does (Tang et al. 2022): at each position that is above the budget, evict what is cheapest for
    its bytes among what is idle there, whatever comes. O(evictions x candidates).
    """
    return _decide(Priced(situation), Search.by_bytes)


def dtr_local(situation: Situation) -> Script:
    """Decide as DTR does with its local heuristic (Kirisame et al. 2021, section 4.1): like `delta`, but what has not
    been used for long goes first. O(evictions x candidates).
    """
    return _decide(Priced(situation), Search.by_staleness)


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"least_cost_cover": least_cost_cover, "delta": delta, "dtr_local": dtr_local}
)
"""By name."""


def policy(name: str) -> Policy:
    """The policy of a name; hyphens and underscores are the same.

    Raises:
        UsageError: there is none.
    """
    known = name.replace("-", "_")
    if known not in POLICIES:
        raise UsageError(f"no policy is called {name!r}", next_step=f"choose one of {', '.join(POLICIES)}")
    return POLICIES[known]


def _decide(priced: Priced, choose: _Choosing, forbidden: frozenset[Candidate] = _NOTHING) -> Script:
    situation = priced.situation
    best: Script | None = None
    extra: dict[int, int] = {}
    for _ in range(_ROUNDS):
        search = Search(priced, extra, forbidden)
        choose(search)
        script = priced.writer.script(search.evictions(), situation.start)
        if best is None or script.peak_bytes < best.peak_bytes:
            best = script
        if script.peak_bytes <= situation.budget_bytes or not search.learn(script, extra):
            break
    assert best is not None
    return best
