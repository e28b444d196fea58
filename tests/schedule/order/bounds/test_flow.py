import random

from neaptide.schedule.order.bounds.flow import INFINITE, FlowNetwork
from support.together import together


def network_of(nodes, arcs):
    network = FlowNetwork(nodes)
    for arc in arcs:
        network.add_arc(*arc)
    return network


def crossing(arcs, inside):
    return sum(capacity for tail, head, capacity in arcs if inside[tail] and not inside[head])


@together("scale", [1, 4, 2**40, 2**40 + 1])
@together("arcs_wanted", [40, 600])
@together("seed", range(3))
def test_flow_equals_both_cuts_at_every_size(seed, arcs_wanted, scale):
    """A flow as large as a cut is a maximum; small and large networks, and capacities beyond 32 bits."""
    rng = random.Random(seed)
    nodes = 60
    arcs = []
    for _ in range(arcs_wanted):
        tail, head = rng.sample(range(nodes), 2)
        is_open = tail > 1 and head > 1 and rng.random() < 0.1
        arcs.append((tail, head, INFINITE if is_open else rng.randint(0, 1000) * scale + rng.randint(0, 1)))
    network = network_of(nodes, arcs)
    flow = network.maximum_flow(0, 1)
    largest = [not reaches for reaches in network.reaching(1)]
    smallest = network.reached(0)
    assert flow == crossing(arcs, smallest) == crossing(arcs, largest)
    assert all(large for small, large in zip(smallest, largest, strict=True) if small)
