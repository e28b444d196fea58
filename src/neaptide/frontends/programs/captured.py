"""A captured step as data: its programs, and what a call must agree on for them to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.guards.signature import Signature, SignatureReader
from neaptide.frontends.guards.size_guard import SizeGuard
from neaptide.frontends.objects.places import Place
from neaptide.frontends.objects.unread import ALL_READ, UnreadNames
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.state.traced import TracedCall
from neaptide.frontends.watch.first_writes import NO_WRITES, FirstWrites
from neaptide.frontends.watch.trace_watch import LeftTensor
from neaptide.ir.graph import Graph


@dataclass(frozen=True)
class Observation:
    """A storage version to be copied in a verify run: a gradient as it is when `optimizer.step()` begins."""

    name: str
    value: int
    version: int


@dataclass(frozen=True, kw_only=True)
class CapturedProgram(TracedCall):
    """A step under one pattern of existing gradients and optimizer state.

    Attributes:
        graph: what it computes. Gradients that the step drops unread are no inputs.
        observations: gradients as they are when `optimizer.step()` begins, for verify runs.
        unknown_ops: operations without a row in the op table; they are left where they are.
        rewrites: what was changed on the way, in words.
        checkpoints: for each call that the user checkpoints, the nodes of its forward that the backward repeats, and
            the node of the backward in front of which it does; they are in the graph once, and what is recomputed is
            planned anew.
    """

    graph: Graph
    observations: tuple[Observation, ...] = ()
    unknown_ops: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    checkpoints: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def ignores_gradients(self) -> bool:
        """Whether it does not read the gradients of `entry`, so it runs as well without them."""
        return not any(slot.role == "gradient" for slot in self.inputs)

    def accepts(
        self,
        gradients: frozenset[str],
        optimizer_state: frozenset[tuple[Any, ...]],
        flags: frozenset[tuple[str, bool]],
    ) -> bool:
        """Whether this program can run when these gradients and this optimizer state exist, with these flags set."""
        known_gradients, known_state, known_flags = self.entry.names()
        if optimizer_state != known_state or flags != known_flags:
            return False
        if not self.ignores_gradients:
            return gradients == known_gradients
        # Of a gradient that did not exist in the trace it is not known whether the step clears it or adds to it.
        return gradients <= known_gradients

    def is_like(self, other: CapturedProgram) -> bool:
        """Whether another capture of the step found the same program for the same gradients and state. O(size)."""
        return self._form() == other._form() and self.graph == other.graph

    def _form(self) -> tuple[Any, ...]:
        decided = self.decisions and (self.decisions.keys, self.decisions.outcomes)
        returned = self.returned.spec, self.returned.changes
        return self.entry.names(), self.inputs, self.outputs, returned, decided

    def with_flags_of(self, names: frozenset[str]) -> CapturedProgram:
        """The same, which asks for the flags of these tensors alone."""
        return replace(self, entry=self.entry.only_flags(names), exit=self.exit.only_flags(names))

    def covers(self, other: CapturedProgram) -> bool:
        """Whether this program can run wherever the other one can."""
        decides = self.decisions is not None or other.decisions is not None
        return not decides and self.accepts(*other.entry.names())


@dataclass(frozen=True)
class StepRequest:
    """What a capture is asked for, besides the step.

    Attributes:
        extra: state that cannot be found by looking through the step.
        name: of the graph.
        changing: names of Python numbers that become inputs.
        unread: what the step is taken not to read.
        counted: names of Python numbers of the state that the step itself writes.
        clears_gradients: host code after the program clears the gradients.
        undoes_checkpoints: functions that the user checkpoints run once, as plain code.
        is_known: an earlier capture shows that it does the same each time, so it is not run again to see.
        dims: of the arguments, that may vary.
        replans: calls that differ are captured again.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    extra: Any
    name: str
    changing: frozenset[str]
    unread: UnreadNames = ALL_READ
    counted: frozenset[str] = frozenset()
    clears_gradients: bool = False
    undoes_checkpoints: bool = False
    is_known: bool = False
    dims: tuple[DynamicDim, ...] = ()
    replans: bool = False


@dataclass(frozen=True)
class CapturedStep:
    """A captured training step.

    Attributes:
        state: the user's objects it works on.
        steady: the program of every step but the first few.
        first: programs of the steps before the optimizer state (or the gradients) exist; often one, maybe none.
        signature: facts that a call must agree on; `reader` reads those of a call.
        request: what was asked for, but for the arguments.
        changing: names of Python numbers that are inputs of the programs.
        first_writes: Python state that the step writes at its first call only; `state` and `signature` are as they
            are afterwards.
        last_writes: Python state that the step writes once, after the program: the capture is of the call that does it.
        host: what runs after the programs; None where nothing does. The programs are then those of its head.
        sizes: reads dims that may vary off the arguments of a call; None where none may.
        has_no_example: a capture at another size of each dim gave the same programs, so none has a size of its example.
    """

    step: Callable[..., Any]
    state: StepState
    steady: CapturedProgram
    first: tuple[CapturedProgram, ...]
    signature: Signature
    reader: SignatureReader
    request: StepRequest
    seconds: float = 0.0
    changing: frozenset[str] = frozenset()
    first_writes: FirstWrites = NO_WRITES
    last_writes: FirstWrites = NO_WRITES
    host: HostCode | None = None
    sizes: SizeGuard | None = None
    has_no_example: bool = False

    @property
    def unread(self) -> UnreadNames:
        """What the programs were proved not to read; of it only the type is a fact."""
        return self.request.unread

    @property
    def checkpoints(self) -> Literal["keep", "undo"]:
        """What was done with functions that the user checkpoints, as the setting of this name says."""
        return "undo" if self.state.undoes_checkpoints else "keep"

    @property
    def left(self) -> list[tuple[Place, LeftTensor]]:
        """Places in which the step leaves another tensor at each call."""
        return (self.first_writes or self.last_writes).left

    @property
    def programs(self) -> tuple[CapturedProgram, ...]:
        """Steady first, then the others."""
        return (self.steady, *self.first)

    def read_signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """The facts of a call with these arguments, as things stand once the step has done its first writes."""
        facts = self.first_writes.odd_facts()
        with self.first_writes.done() if self.first_writes else nullcontext():
            signature = self.reader.read(args, kwargs)
        return replace(signature, scalars=signature.scalars + facts) if facts else signature

    def agrees(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call has the facts of the capture; raises as `read_signature` does."""
        if self.first_writes.odd_facts():
            return False
        with self.first_writes.done() if self.first_writes else nullcontext():
            return self.reader.agrees(args, kwargs, self.signature)
