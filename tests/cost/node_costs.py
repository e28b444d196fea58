"""What a cost model says of each node of a graph."""


def node_seconds(cost, graph):
    """Seconds of each node of a graph, by node id. O(nodes)."""
    return [cost.seconds(graph, node) for node in graph.nodes]


def node_workspace(cost, graph):
    """Workspace bytes of those nodes of a graph that need any, by node id. O(nodes)."""
    found = ((node.id, cost.workspace_bytes(graph, node)) for node in graph.nodes)
    return {node: nbytes for node, nbytes in found if nbytes}
