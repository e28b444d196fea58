"""Chains for tests: a step that is a plain chain, and the costs of a made-up chain."""

from __future__ import annotations

from neaptide.planner.recompute.chain.program import ChainCosts, Option
from neaptide.schedule.recompute_form import InstanceNode, from_nodes


def chain_step(length, size=100, seconds=1.0, gradient=1):
    """A forward chain of equal nodes; each backward node reads what its forward node read and made, and the gradient."""
    nodes = [
        InstanceNode(f"f{i}", size, [i - 1] if i else [], seconds=seconds, phase="fwd") for i in range(length)
    ]
    for i in reversed(range(length)):
        reads = [j for j in (i - 1, i) if j >= 0]
        reads += [] if i == length - 1 else [len(nodes) - 1]
        nodes.append(InstanceNode(f"b{i}", gradient, reads, seconds=seconds, out=i == 0, phase="bwd"))
    return from_nodes(nodes)


def random_chain_step(length, draw):
    """The same with sizes and seconds drawn; a backward takes twice as long as its forward."""
    nodes = [
        InstanceNode(
            f"f{i}",
            draw.randint(20, 100),
            [i - 1] if i else [],
            seconds=float(draw.randint(1, 9)),
            phase="fwd",
        )
        for i in range(length)
    ]
    for i in reversed(range(length)):
        reads = [j for j in (i - 1, i) if j >= 0]
        reads += [] if i == length - 1 else [len(nodes) - 1]
        seconds = 2.0 * nodes[i].seconds
        nodes.append(
            InstanceNode(f"b{i}", draw.randint(5, 30), reads, seconds=seconds, out=i == 0, phase="bwd")
        )
    return from_nodes(nodes)


def rotor_costs(forward_s, tape, entering):
    """Costs of a chain with one option a block: hold all of its tape, or nothing but what leaves it."""
    count = len(forward_s)
    options = []
    for block in range(count):
        leaving = entering[block + 1] if block + 1 < count else 0
        options.append(
            (
                Option(frozenset({block}), tape[block], forward_s[block], 0.0, tape[block], tape[block]),
                Option(frozenset(), leaving, forward_s[block], forward_s[block], tape[block], tape[block]),
            )
        )
    return ChainCosts(
        tuple(options),
        tuple(((nothing.backward_s, nothing.backward_peak_bytes),) * 2 for _, nothing in options),
        ((0,) * count,) * count,
        tuple(tuple(size if j > a else 0 for j, size in enumerate(entering)) for a in range(count)),
        tuple(forward_s),
        (0,) * count,
        (0,) * count,
    )


def revolve_costs(length):
    """A chain in which nothing but one byte in front of a block can be held, and every run but the first counts."""
    option = Option(frozenset(), 10**6, 1.0, 0.0, 0, 0)
    return ChainCosts(
        ((option,),) * length,
        (((0.0, 0),) * 2,) * length,
        ((0,) * length,) * length,
        tuple(tuple(int(j > a) for j in range(length)) for a in range(length)),
        (1.0,) * length,
        (0,) * length,
        (0,) * length,
    )
