"""A backward pass walked in Python, as PyTorch's engine walks it.

The engine asks the driver of a card for its streams before it runs anything there. This walk asks nobody: it takes the
ready node that was made last, accumulators of leaves first, and adds up what several nodes give to one. What the engine
and this walk do is the same, to the last bit and operation; `tests/frontends/card` compares them on the CPU.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch

from neaptide.frontends._torch_private import sequence_of
from neaptide.frontends.card import _torch_private as private
from neaptide.frontends.card.backward_nodes import BackwardNodes, Gradients, fitting, is_accumulator
from neaptide.frontends.objects.places import Replacement

_FIRST_ID = 1 << 40  # of passes: the engine's own count from zero
_UNUSED = (
    "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the "
    "desired behavior."
)


class BackwardPasses:
    """All backward passes of a trace, walked in Python."""

    def __init__(self) -> None:
        self._nodes = BackwardNodes()
        self._running: list[_Pass] = []
        self._ids = count(_FIRST_ID)

    def replacements(self) -> Iterator[Replacement]:
        """What stands in for the engine while a step is traced."""
        yield from self._nodes.replacements()
        for module in (torch.autograd, torch.autograd.graph):
            yield module, private.ENGINE, lambda _original: self.run
        engine = torch._C  # noqa: SLF001 - where what asks about the engine finds these
        yield engine, "_current_graph_task_id", self._number
        yield engine, "_will_engine_execute_node", self._will_run

    def run(
        self,
        roots: Sequence[Any],
        gradients: Sequence[torch.Tensor | None],
        keep_graph: bool,
        create_graph: bool,
        inputs: Sequence[Any] = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[torch.Tensor | None, ...]:
        """One pass; arguments and result are those of the engine."""
        if accumulate_grad:
            for tensor in inputs:
                if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                    tensor.retain_grad()
        found = _Pass(self._nodes, next(self._ids), bool(keep_graph))
        self._running.append(found)
        try:
            with torch.set_grad_enabled(bool(create_graph)):
                wanted = [_ending(tensor) for tensor in inputs]
                found.start(roots, gradients, wanted, captures=not accumulate_grad)
                found.walk()
        finally:
            self._running.pop()
        if accumulate_grad or not inputs:
            return ()
        answers = tuple(found.captured.get(end) for end in wanted)
        if not allow_unreachable and any(answer is None for answer in answers):
            raise RuntimeError(_UNUSED)
        return answers

    def _number(self, original: Callable[[], int]) -> Callable[[], int]:
        return lambda: self._running[-1].number if self._running else original()

    def _will_run(self, original: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda node: self._running[-1].runs(node) if self._running else original(node)


_End = tuple[Any, int]
"""A node and the number of its result; of a leaf the leaf's identity, since its accumulator has no other name."""


def _ending(tensor: Any) -> _End:
    if not isinstance(tensor, torch.Tensor):  # a `GradientEdge`
        node, position = tensor.node, tensor.output_nr
        return (id(node.variable), 0) if is_accumulator(node) else (node, position)
    if tensor.grad_fn is None:
        return id(tensor), 0
    return tensor.grad_fn, tensor.output_nr


class _Pass:
    def __init__(self, nodes: BackwardNodes, number: int, keeps_graph: bool) -> None:
        self.number = number
        self.captured: dict[_End, torch.Tensor | None] = {}
        self._nodes, self._keeps_graph = nodes, keeps_graph
        self._waiting: Counter[Any] = Counter()  # gradients that are still to come, by node
        self._buffers: dict[Any, Gradients] = {}
        self._ready: list[tuple[int, int, Any]] = []
        self._order = count()
        self._ends: dict[Any, list[int]] = {}
        self._needed: set[Any] | None = None  # None: every node
        self._reached: set[Any] = set()

    def start(
        self, roots: Sequence[Any], gradients: Sequence[Any], wanted: Sequence[_End], *, captures: bool
    ) -> None:
        """Find what the walk goes through, and hand their gradients to the roots."""
        found: dict[Any, list[tuple[int, Any]]] = {}
        for root, gradient in zip(roots, gradients, strict=True):
            tensor = root if isinstance(root, torch.Tensor) else None
            node = root.node if tensor is None else tensor.grad_fn
            if node is None:
                assert tensor is not None
                self._start_leaf(tensor, gradient, wanted, captures)
                continue
            position = root.output_nr
            found.setdefault(node, []).append((position, gradient))
        order = self._reach(list(found))
        if wanted:
            self._find_ends(order, wanted, captures)
        for node, given in found.items():
            for position, gradient in given:
                self._add(node, position, fitting(gradient, private.results_of(node)[position]))
            if not self._waiting[node]:
                self._push(node)

    def _start_leaf(self, leaf: torch.Tensor, gradient: Any, wanted: Sequence[_End], captures: bool) -> None:
        if not leaf.requires_grad:
            raise RuntimeError("a tensor does not require grad and does not have a grad_fn")
        end = (id(leaf), 0)
        if wanted and captures:
            if end in wanted:
                self.captured[end] = gradient
        elif not wanted or end in wanted:
            with torch.no_grad():
                leaf.grad = gradient.clone() if leaf.grad is None else leaf.grad + gradient

    def _reach(self, roots: list[Any]) -> list[Any]:
        """All nodes after the roots; counts the gradients that each waits for."""
        self._reached, stack, order = set(roots), list(roots), []
        while stack:
            node = stack.pop()
            order.append(node)
            for following, _ in node.next_functions:
                if following is not None:
                    self._waiting[following] += 1
                    if following not in self._reached:
                        self._reached.add(following)
                        stack.append(following)
        return order

    def _find_ends(self, order: list[Any], wanted: Sequence[_End], captures: bool) -> None:
        """Which nodes lead to what is asked for; only these run."""
        ends = set(wanted)
        of_node: dict[Any, list[int]] = {}
        for node in order:
            if is_accumulator(node) and (id(node.variable), 0) in ends:
                of_node[node] = [0]
        for end, position in ends:
            if end in self._reached:
                of_node.setdefault(end, []).append(position)
        # An end itself runs only where its gradient is accumulated, or something further on is asked for, too.
        self._needed = {node for node in of_node if is_accumulator(node) and not captures}
        leads = dict.fromkeys(of_node, True)
        for node in self._after_all_that_follow(order):
            if any(following in leads for following, _ in node.next_functions if following is not None):
                leads[node] = True
                self._needed.add(node)
        if captures:
            self._ends = of_node

    def _after_all_that_follow(self, order: list[Any]) -> Iterator[Any]:
        """The nodes, each after all that it leads to."""
        left = {node: sum(1 for n, _ in node.next_functions if n is not None) for node in order}
        before: dict[Any, list[Any]] = {}
        for node in order:
            for following, _ in node.next_functions:
                if following is not None:
                    before.setdefault(following, []).append(node)
        ready = [node for node, number in left.items() if not number]
        while ready:
            node = ready.pop()
            yield node
            for earlier in before.get(node, ()):
                left[earlier] -= 1
                if not left[earlier]:
                    ready.append(earlier)

    def runs(self, node: Any) -> bool:
        """Whether the walk comes to a node and runs it."""
        return node in self._reached if self._needed is None else node in self._needed

    def walk(self) -> None:
        """Run every node once, when all its gradients are there."""
        while self._ready:
            node = heapq.heappop(self._ready)[-1]
            results = self._step(node, self._buffers.pop(node, None))
            if results is None:
                continue
            for number, (following, position) in enumerate(node.next_functions):
                if following is None:
                    continue
                self._waiting[following] -= 1
                if self._needed is None or following in self._needed or following in self._ends:
                    self._add(following, position, results[number])
                    results[number] = None
                    if not self._waiting[following]:
                        self._push(following)

    def _step(self, node: Any, gradients: Gradients | None) -> Gradients | None:
        """What a node gives; None where it is not run."""
        assert gradients is not None
        runs = self.runs(node)
        if not runs or node not in self._ends:
            gradients = self._nodes.before(node, gradients)
        if node in self._ends:
            for position in self._ends[node]:
                end = (id(node.variable), 0) if is_accumulator(node) else (node, position)
                self.captured[end] = gradients[position]
            if runs:
                gradients = self._nodes.before(node, gradients)
        return self._nodes.run(node, gradients, keeps_graph=self._keeps_graph) if runs else None

    def _push(self, node: Any) -> None:
        heapq.heappush(self._ready, (-sequence_of(node), next(self._order), node))

    def _add(self, node: Any, position: int, gradient: torch.Tensor | None) -> None:
        held = self._buffers.get(node)
        if held is None:
            held = self._buffers[node] = [None] * len(private.results_of(node))
        if gradient is not None:
            before = held[position]
            held[position] = gradient if before is None else before + gradient
