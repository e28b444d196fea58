"""Which calls of a graph really write where they are told: each distinct one is run alone, both ways, and compared.

An `out=` overload is clean when it allocates less than the plain call by at least the bytes of the results, keeps
the tensors that it was given, and fills them with the same bits. Answers are kept on disk beside the measured costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from neaptide.cost.cache import OpCostCache
from neaptide.cost.op_key import OpCall, Operand
from neaptide.cost.timing.graph_calls import keyed_call
from neaptide.cost.timing.op_runner import OperandMaker, PreparedCall, find_op, flat_results
from neaptide.cost.timing.op_session import (
    RUN_ERRORS,
    Counted,
    counted,
    environment,
    may_take_bytes,
    undisturbed,
    why_not_run,
)
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.lower.out_variants import out_variants
from neaptide.lower.places import OutVariant
from neaptide.lower.torch_calls import result_structure

_SUFFIX: Final = ":out"
_POISON: Final = 0xFF
_PLAIN: Final = -1
Measured = Callable[[int, Callable[[], object]], None]
"""Runs a function and counts what it allocates, under the number of an overload, or `_PLAIN`."""
NO_OVERLOAD: Final = "it has no overload that writes to a given tensor"


@dataclass(frozen=True, slots=True)
class OutFacts:
    """How a node can be told where its results go."""

    variant: OutVariant | None
    workspace_bytes: int = 0
    reason: str = ""


NO_FACTS: Final = OutFacts(None)
"""Of a node that makes no bytes."""


def probe_outs(
    graph: Graph, registry: OpRegistry, *, cache: OpCostCache | None = None
) -> dict[int, OutFacts]:
    """What is known of each node that makes bytes, by id; what no cache knows is run now."""
    facts: dict[int, OutFacts] = {}
    open_nodes: dict[int, str] = {}
    tried: dict[str, _Trial] = {}
    most = may_take_bytes()
    for node in graph.nodes:
        if node.regions or not graph.created_storages(node):
            continue
        variants = out_variants(node.op)
        reason = _why_not(graph, node, registry) if variants else NO_OVERLOAD
        keyed = None if reason else keyed_call(graph, node, environment(), {})
        if keyed is None:
            facts[node.id] = OutFacts(None, reason=reason or "it is no operation of torch")
        elif refused := why_not_run(keyed.call, registry, most):
            # Not taken at its word: an overload that resizes what it is given would write beyond its place.
            facts[node.id] = OutFacts(None, reason=refused)
        else:
            open_nodes[node.id] = keyed.key
            tried[keyed.key] = _Trial(keyed.call, variants)
    known = _complete(tried, cache)
    return facts | {node: known[key] for node, key in open_nodes.items()}


def _why_not(graph: Graph, node: Node, registry: OpRegistry) -> str:
    """Why the results of a node cannot be sent to their places whatever overloads it has; empty when they can."""
    if registry.find(node.op) is None:
        return "the op table has no row for it"
    effects = node.effects
    if effects.rng is not None or effects.collective is not None or effects.host:
        return "it has effects beside its results"
    if set(needed_inputs(graph, node)) != set(node.inputs):
        return "it is given the shape of an operand, not the operand"
    results = result_structure(node)
    flat = results if isinstance(results, tuple) else (results,)
    slots = [item.slot for item in flat if isinstance(item, Ref)]
    if len(slots) != len(flat) or sorted(slots) != list(range(len(node.outputs))):
        return "it returns a list, or something that the program leaves out"
    storages = [graph.values[v].storage for v in node.outputs]
    if set(storages) != set(graph.created_storages(node)) or len(set(storages)) != len(storages):
        return "its results share bytes with each other or with an operand"
    return ""


@dataclass(slots=True)
class _Trial:
    """A call to be tried; `peaks` are the fewest bytes that a run allocated, by the overload's position."""

    call: OpCall
    variants: tuple[OutVariant, ...]
    failures: dict[int, str] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    result_bytes: int = 0

    def facts(self) -> OutFacts:
        for which, variant in enumerate(self.variants):
            if which in self.failures or which not in self.peaks or _PLAIN not in self.peaks:
                continue
            if self.peaks[_PLAIN] - self.peaks[which] >= self.result_bytes:
                return OutFacts(variant, self.peaks[which])
            self.failures[which] = f"{variant.op} allocates its result all the same"
        return OutFacts(None, reason="; ".join(self.failures.values()) or NO_OVERLOAD)

    def run(self, maker: OperandMaker, measured: Measured) -> None:
        """Run the plain call and then each overload, all of them twice; what fails is noted."""
        everything = range(len(self.variants))
        try:
            prepared = PreparedCall(self.call, maker.operands(self.call))
            operands = _Operands(prepared, changes=not self.call.is_pure)
            expected: list[Any] = []
            for _ in range(2):
                expected.clear()
                operands.put_back()
                measured(_PLAIN, lambda: expected.append(prepared.run()))
            results = flat_results(self.call, expected.pop())
            operands.note()
        except RUN_ERRORS as error:
            self.failures = dict.fromkeys(everything, f"it fails alone: {type(error).__name__}")
            return
        shown = [_geometry(result) for result in results]
        if shown != [(o.dtype, o.shape, o.strides) for o in self.call.outputs]:
            self.failures = dict.fromkeys(everything, "its results are not laid out as captured")
            return
        self.result_bytes = sum(result.untyped_storage().nbytes() for result in results)
        for which, variant in enumerate(self.variants):
            try:
                failure = self._into(which, variant, operands, results, measured)
            except RUN_ERRORS as error:
                failure = f"{variant.op} fails: {type(error).__name__}"
            if failure:
                self.failures[which] = failure

    def _into(
        self,
        which: int,
        variant: OutVariant,
        operands: _Operands,
        expected: list[torch.Tensor],
        measured: Measured,
    ) -> str:
        """Run one overload; what is wrong with it, apart from what it allocates."""
        args, kwargs = operands.prepared.arguments
        targets = [_empty(output) for output in self.call.outputs]
        addresses = [target.data_ptr() for target in targets]
        named = {k: v for k, v in kwargs.items() if k not in variant.dropped and not variant.is_copy}
        named |= dict(zip(variant.keywords, targets, strict=False))
        given = (targets[0], args[0]) if variant.is_copy else (*args, *variant.extra)
        run = partial(find_op(variant.op), *given, **named)
        for _ in range(2):
            operands.put_back()
            for target in targets:
                _bytes_of(target).fill_(_POISON)
            measured(which, run)
        if [target.data_ptr() for target in targets] != addresses:
            return f"{variant.op} replaces what it is given"
        if [_geometry(target) for target in targets] != [_geometry(result) for result in expected]:
            return f"{variant.op} lays its result out anew"
        if not all(torch.equal(_bytes_of(a), _bytes_of(b)) for a, b in zip(targets, expected, strict=True)):
            return f"{variant.op} gives other bits"
        return "" if operands.are_as_noted() else f"{variant.op} changes its operands in another way"


class _Operands:
    """The operands of a call that may change them: put back before each run, compared after it."""

    def __init__(self, prepared: PreparedCall, *, changes: bool) -> None:
        self.prepared = prepared
        tensors = [o for o in prepared.operands if isinstance(o, torch.Tensor) and o.device.type != "meta"]
        self._watched = [(_bytes_of(t), _bytes_of(t).clone()) for t in tensors] if changes else []
        self._noted: list[torch.Tensor] = []

    def put_back(self) -> None:
        for now, before in self._watched:
            now.copy_(before)

    def note(self) -> None:
        self._noted = [now.clone() for now, _ in self._watched]

    def are_as_noted(self) -> bool:
        return all(torch.equal(now, then) for (now, _), then in zip(self._watched, self._noted, strict=True))


def _complete(trials: Mapping[str, _Trial], cache: OpCostCache | None) -> dict[str, OutFacts]:
    """Answers of earlier processes; what they lack is run now."""
    if not trials:
        return {}
    kept = OpCostCache() if cache is None else cache
    stored = kept.get_many(key + _SUFFIX for key in trials)
    found: dict[str, OutFacts] = {}
    for key, trial in trials.items():
        if (facts := _from_plain(stored.get(key + _SUFFIX), trial.variants)) is not None:
            found[key] = facts
    missing = {key: trial for key, trial in trials.items() if key not in found}
    if missing:
        _run(missing)
        fresh = {key: trial.facts() for key, trial in missing.items()}
        kept.put_many({key + _SUFFIX: _plain(one) for key, one in fresh.items()})
        found |= fresh
    return found


def _plain(facts: OutFacts) -> dict[str, Any]:
    op = "" if facts.variant is None else facts.variant.op
    return {"op": op, "workspace_bytes": facts.workspace_bytes, "reason": facts.reason}


def _from_plain(plain: Mapping[str, Any] | None, variants: tuple[OutVariant, ...]) -> OutFacts | None:
    """An answer as it was stored; None when it is none, or about overloads that this torch has not."""
    op, nbytes, reason = map((plain or {}).get, ("op", "workspace_bytes", "reason"))
    if not (isinstance(op, str) and isinstance(nbytes, int) and isinstance(reason, str)):
        return None
    variant = next((v for v in variants if v.op == op), None)
    return None if op and variant is None else OutFacts(variant, nbytes, reason)


def _run(trials: Mapping[str, _Trial]) -> None:
    calls, maker = {key: trial.call for key, trial in trials.items()}, OperandMaker()

    def visit(key: str, count: Counted) -> None:
        trials[key].run(maker, lambda which, run: count(f"{key}/{which}", run))

    with undisturbed(calls.values()), warnings.catch_warnings():
        # An overload that resizes what it is given warns of it; it is refused for that.
        warnings.simplefilter("ignore")
        peaks = counted(calls, visit)
    for name, peak in peaks.items():
        key, _, which = name.rpartition("/")
        trials[key].peaks[int(which)] = peak


def _geometry(tensor: Any) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    if not isinstance(tensor, torch.Tensor):
        return None
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride())


def _empty(output: Operand) -> torch.Tensor:
    dtype = getattr(torch, output.dtype)
    return torch.empty_strided(output.shape, output.strides, dtype=dtype, device=output.device)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
