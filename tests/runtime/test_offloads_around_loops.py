"""Programs in parts whose storages wait on the host meanwhile run as eager does, in the bytes that were predicted."""

from __future__ import annotations

import pytest

from neaptide import zoo
from neaptide.ask import CLOSE, Ask
from neaptide.budget import Budget
from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.variants.choices import Choices
from support import catalogue
from support.step_checks import assert_runs_as_predicted
from support.steps import wide_head

DEVICE = "a100-80g"


FAST = SlowMemory(bytes_per_s=2e9)


def prepared(factory):
    return catalogue.prepared(factory, device=DEVICE, slow=FAST)


def suffix_in_parts(planning, parts=2):
    """The rewrites that have the smallest region after one value in parts, forward and backward."""
    choices = Choices(registry(), lambda _: None)
    found = choices.after(choices.begun(planning.captured.steady.graph))
    behind = [choice for choice in found if choice.regions[0].kind == "suffix" and not choice.within]
    variant = choices.taken(min(behind, key=lambda choice: choice.nbytes), parts)
    assert variant is not None
    return variant.rewrites


def offloads_across_loops(found):
    """Offloads of the usual program during which a loop runs."""
    program, graph = found.plan.programs[0], found.variant.graphs[0].graph
    loops = {position for position, node in enumerate(program.sequence) if graph.nodes[node].regions}
    return [
        offload
        for offload in program.offloads
        if loops & set(range(offload.gone_after + 1, offload.load_before))
    ]


def test_storages_wait_on_the_host_while_a_loop_runs():
    planning = prepared(wide_head)
    rewrites = suffix_in_parts(planning)
    options = Ask(Budget("75%", host="64MiB"), limits=Limits(work=300, seed=0), rewrites=rewrites)
    found = planning.plan(options)
    assert offloads_across_loops(found)
    assert_runs_as_predicted(wide_head, found)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "work"), [("gpt2@tiny", 100), ("unet@tiny", 50)])
def test_bodies_of_loops_take_storages_to_the_host_in_each_trip(spec, work):
    factory = zoo.factory(spec)
    limits = Limits(work=work, seed=0)
    options = Ask(Budget("min", host="64MiB"), limits=limits, numerics=CLOSE, workers=1)
    found = prepared(factory).plan(options)
    assert any(order.offloads for order in found.plan.programs[0].bodies)
    assert_runs_as_predicted(factory, found)
