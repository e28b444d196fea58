"""The states one rewrite away: moves of the F-tree, recomputations and offloads, and their inverses.

Chen et al., MAGIS (ASPLOS 2024), sections 4 and 5, as released (`SwapRematMutator`): only tensors that are there at the
peak and idle then are recomputed or stored, and all later uses of a part go to what comes back.
"""

from __future__ import annotations

from collections.abc import Iterator

from neaptide_peers.magis.f_tree_moves import Parts, next_choices
from neaptide_peers.magis.simulate import ROOT, Live, Simulated, Simulator
from neaptide_peers.magis.state import State


def next_states(simulator: Simulator, state: State, simulated: Simulated) -> Iterator[State]:
    """States one move away, those of the F-tree first, then those of the tensors that idle longest."""
    yield from next_parts(simulator, state)
    idle = [found for found in simulated.live if found.was_used and found.user >= 0]
    for live in sorted(idle, key=lambda found: (-found.span, found.tensor)):
        if _may_run_again(simulator, state, live):
            yield state.toggled_again((simulator.flat.maker[live.tensor], live.user))
        if _may_go_away(simulator, state, live):
            yield state.toggled_away((live.tensor, live.user))
    for again in sorted(state.again):
        yield state.toggled_again(again)
    for away in sorted(state.away):
        yield state.toggled_away(away)


def next_parts(simulator: Simulator, state: State) -> Iterator[State]:
    """States one move of the F-tree away."""
    for _, parts in next_choices(simulator.tree, state.parts):
        yield _without_torn(simulator, state.with_parts(parts))


def level_of(simulator: Simulator, parts: Parts, node: int) -> int:
    """The innermost region in parts that a node is in; `ROOT` for none."""
    found = [k for k, _ in parts if node in simulator.tree.regions[k].members]
    return min(found, key=lambda k: (len(simulator.tree.regions[k].members), -k), default=ROOT)


def _may_run_again(simulator: Simulator, state: State, live: Live) -> bool:
    flat, node = simulator.flat, simulator.flat.maker[live.tensor]
    if node < 0 or live.user >= flat.again_until[node]:
        return False
    # The user stands for a region where it is the last member of one.
    return level_of(simulator, state.parts, node) == live.level and (node, live.user) not in state.again


def _may_go_away(simulator: Simulator, state: State, live: Live) -> bool:
    """What the step is called with stays where it is."""
    flat = simulator.flat
    if flat.copying is None or live.tensor not in flat.copying.movable or flat.maker[live.tensor] < 0:
        return False
    return live.level == ROOT and (live.tensor, live.user) not in state.away


def _without_torn(simulator: Simulator, state: State) -> State:
    """The state without recomputations and offloads that the border of a region has come to divide."""
    chosen = dict(state.parts)
    lasts = {max(simulator.tree.regions[k].members) for k in chosen}
    for node, user in sorted(state.again):
        levels = {level_of(simulator, state.parts, n) for n in (node, user)}
        if len(levels) > 1:
            state = state.toggled_again((node, user))
    for tensor, user in sorted(state.away):
        maker = simulator.flat.maker[tensor]
        is_outside = maker < 0 or level_of(simulator, state.parts, maker) == ROOT
        at_root = user in lasts or level_of(simulator, state.parts, user) == ROOT
        if not (is_outside and at_root):
            state = state.toggled_away((tensor, user))
    return state
