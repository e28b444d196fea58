"""What `planner.passes.search.PassStrategy` promises, of the strategies of this package and of those of others by name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import threading

from neaptide.named_peers import PASSES as PEERS
from neaptide.named_peers import peer
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner import passes
from neaptide.planner.passes.learned import LearnedStrategy
from neaptide.planner.passes.named_order import NamedOrder
from neaptide.planner.passes.prior import FORMAT, Prior, PriorFile
from neaptide.planner.passes.search import PassStrategy, search_passes
from planner.passes.pass_play import PASSES, SetSpace
from support.together import together

OWN = {
    LearnedStrategy: lambda: LearnedStrategy(Prior(PriorFile(FORMAT, (), (), {}, -0.01, -0.05))),
    NamedOrder: lambda: NamedOrder(PASSES),
}
EACH = (*(kind.__name__ for kind in OWN), *PEERS)


def strategy(name, seed):
    for kind, make in OWN.items():
        if kind.__name__ == name:
            return make()
    return peer("passes", name).strategy(seed)


def test_every_class_that_picks_is_among_them():
    modules = [
        importlib.import_module(f"{passes.__name__}.{found.name}")
        for found in pkgutil.iter_modules(passes.__path__)
    ]
    kinds = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "pick")
    }
    assert kinds - {PassStrategy} == set(OWN)


@together("name", EACH, quick=range(len(OWN)))
def test_measurements_are_counted_and_bounded_and_the_answer_is_the_same_again(name):
    for seed in range(8):
        for limit in (1, 2, 5, 9):
            spaces = SetSpace(seed), SetSpace(seed)
            first, again = (
                search_passes(space, strategy(name, seed), Limits(work=limit)) for space in spaces
            )
            assert first.work == len(spaces[0].measured) <= limit
            assert len(set(spaces[0].measured)) == first.work
            archive = first.require()
            assert archive.best.nbytes == min(spaces[0].nbytes(s) for s in spaces[0].measured)
            assert archive.best.nbytes <= archive.entries[0].nbytes
            assert archive.passes(archive.best.number) == again.require().passes(again.require().best.number)
            assert first.termination == again.termination


@together("name", EACH, quick=range(len(OWN)))
def test_a_search_ends_by_itself_without_limits_and_at_once_when_it_is_interrupted(name):
    ended = search_passes(SetSpace(3), strategy(name, 3), Limits()).termination
    assert (ended.reason, ended.limit) == (TerminationReason.FEASIBLE, None)
    assert ended.detail
    stop = threading.Event()
    stop.set()
    outcome = search_passes(SetSpace(1), strategy(name, 1), Limits(), interrupt=stop)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert len(outcome.require().entries) == 1
