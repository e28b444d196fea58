import random

from neaptide.schedule.order.bounds.flow import INFINITE, FlowNetwork
from together import together


def network_of(nodes, arcs):
    network = FlowNetwork(nodes)
    for arc in arcs:
        network.add_arc(*arc)
    return network


def crossing(arcs, inside):
    return sum(capacity for tail, head, capacity in arcs if inside[tail] and not inside[head])


def test_flow_of_a_small_network():
    network = network_of(4, [(0, 1, 3), (0, 2, 2), (1, 2, 5), (1, 3, 2), (2, 3, 3)])
    assert network.maximum_flow(0, 3) == 5
    assert network.reached(0) == [True, False, False, False]


def test_parallel_and_opposite_arcs_add_up():
    network = network_of(3, [(0, 1, 2), (0, 1, 3), (1, 0, 7), (1, 2, 4), (2, 1, 9), (1, 2, 2)])
    assert network.maximum_flow(0, 2) == 5


def test_nothing_flows_without_a_path():
    network = network_of(3, [(0, 1, 2)])
    assert network.maximum_flow(0, 2) == 0
    assert network.reaching(2) == [False, False, True]


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
