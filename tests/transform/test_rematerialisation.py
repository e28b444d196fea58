"""Operations made again: the same results, and equal operations made once give the graph back."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.text.parser import parse_graph
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.rematerialisation import Again, rematerialisation
from neaptide_corpus.training_steps import toy_registry
from support.drawn import examples, graphs
from transform.graph_play import played

ONCE = "common_subexpressions"


def some_group(draw, graph):
    """A node with some of its users, and now and then a node that it follows from."""
    consumers = graph.consumers()
    used = {node.id: sorted({u for v in node.outputs for u in consumers[v]}) for node in graph.nodes}
    assume(any(used.values()))
    last = draw(st.sampled_from([node for node, users in used.items() if users]))
    before = [graph.producer(value) for value in graph.nodes[last].inputs]
    first = draw(st.sampled_from([last, *(node for node in before if node is not None)]))
    users = draw(st.lists(st.sampled_from(used[last]), min_size=1, unique=True))
    return Again(tuple(sorted({first, last})), tuple(sorted(users)))


def made_once(edited, group):
    """The rewrites that join each node of a group and its copy, one after the other, and what they make."""
    copies = [new for new, old in enumerate(edited.node_of) if old < 0]
    here, rewrites = Edited.unchanged(edited.graph), []
    for node, copy in zip(group.nodes, copies, strict=True):
        named = Rewrite(ONCE, (edited.node_of.index(node), copy)).moved(here)
        here = here.then(replay(here.graph, toy_registry(), [named], RULES))
        rewrites.append(named)
    return here.graph, rewrites


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_equal_operations_made_once_give_the_graph_back(data):
    graph = data.draw(graphs(min_nodes=2, max_nodes=12))
    way = []
    for _ in range(data.draw(st.integers(1, 3))):
        group = some_group(data.draw, graph)
        try:
            edited = replay(graph, toy_registry(), [rematerialisation([group])], RULES)
        except RewriteError:
            continue
        assert played(edited.graph) == played(graph)
        assert len(edited.graph.nodes) == len(graph.nodes) + len(group.nodes)
        way.append((graph, edited, group))
        graph = edited.graph
    assume(way)
    for before, edited, group in reversed(way):
        back, rewrites = made_once(edited, group)
        assert back == before
        assert fingerprint(back) == fingerprint(before)
        assert replay(edited.graph, toy_registry(), rewrites, RULES).graph == before


def test_outputs_that_share_bytes_go_on_sharing_them():
    graph = parse_graph(
        'graph "g" {\ninput %x: f32[4] kind(input)\n%a: f32[4] = toy.mix(%x) reads(@x)\n'
        "%b: f32[4] @a = toy.view(%a)\n%c: f32[4] @a = toy.view(%b)\noutput(%b, %c)\n}"
    )
    with pytest.raises(RewriteError, match="share bytes"):
        replay(graph, toy_registry(), [rematerialisation([Again((0, 1), (2,))])], RULES)
