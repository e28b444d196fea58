"""A captured step as data: its programs, and what a call must agree on for them to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from neaptide.frontends.guards.signature import Signature, SignatureReader
from neaptide.frontends.guards.size_guard import SizeGuard
from neaptide.frontends.objects.places import Place
from neaptide.frontends.objects.unread import ALL_READ, UnreadNames
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.recording.size_facts import NO_SIZES, SizeFacts
from neaptide.frontends.state.argument_changes import NO_CHANGES, ArgumentChanges
from neaptide.frontends.state.step_slots import EntryPattern, InputSlot, OutputSlot
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.trace.trace_reader import Observation
from neaptide.frontends.watch.first_writes import NO_WRITES, FirstWrites
from neaptide.frontends.watch.trace_watch import LeftTensor
from neaptide.ir.graph import Graph

if TYPE_CHECKING:
    from neaptide.frontends.programs.step_programs import StepRequest


@dataclass(frozen=True)
class CapturedProgram:
    """A step under one pattern of existing gradients and optimizer state.

    Attributes:
        graph: what it computes.
        inputs: meaning of the graph's inputs, in order.
        outputs: meaning of the graph's outputs, in order.
        result_spec: structure of the step's return value; `constants` are its leaves that are no tensors.
        entry: the pattern it was captured with.
        exit: the pattern it leaves behind.
        kept_gradients: gradients of the entry that are still the parameters' afterwards.
        ignores_gradients: it does not read the gradients of `entry`, so it runs as well without them.
        observations: gradients as they are when `optimizer.step()` begins, for verify runs.
        unknown_ops: operations without a row in the op table.
        rewrites: what was changed on the way, in words.
        checkpoints: for each call that the user checkpoints, the nodes of its forward that the backward repeats, and
            the node of the backward in front of which it does; they are in the graph once, and what is recomputed is
            planned anew.
        borrowed: leaves of the return value that are the user's own objects, see `Trace`.
        attached: leaves of the return value that autograd could go back through, likewise.
        open_results: those of them that are differentiated outside, if anywhere, likewise.
        written: outputs that are the same plain value at each call.
        decisions: the branches that it took by step counts and other numbers of the host: it is for calls that
            take the same; None where there are none.
        sizes: the dims that may vary, and for which sizes it holds.
        argument_flags: see `Trace`.
        changes: likewise.
    """

    graph: Graph
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    result_spec: Any
    constants: Mapping[int, Any]
    entry: EntryPattern
    exit: EntryPattern
    kept_gradients: frozenset[str]
    ignores_gradients: bool
    observations: tuple[Observation, ...]
    unknown_ops: tuple[str, ...]
    rewrites: tuple[str, ...]
    checkpoints: tuple[tuple[int, ...], ...] = ()
    borrowed: Mapping[int, tuple[str, Any]] = field(default_factory=dict)
    attached: Mapping[int, bool] = field(default_factory=dict)
    open_results: Mapping[int, str] = field(default_factory=dict)
    written: Mapping[OutputSlot, Any] = field(default_factory=dict)
    decisions: HostPart | None = None
    sizes: SizeFacts = NO_SIZES
    argument_flags: Mapping[int, bool] = field(default_factory=dict)
    changes: ArgumentChanges = NO_CHANGES

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
        mine, theirs = self.decisions, other.decisions
        return (
            self.entry.names() == other.entry.names()
            and self.inputs == other.inputs
            and self.outputs == other.outputs
            and (self.result_spec, self.changes) == (other.result_spec, other.changes)
            and (mine is None) == (theirs is None)
            and (
                mine is None or theirs is None or (mine.keys, mine.outcomes) == (theirs.keys, theirs.outcomes)
            )
            and self.graph == other.graph
        )

    def with_flags_of(self, names: frozenset[str]) -> CapturedProgram:
        """The same, which asks for the flags of these tensors alone."""
        return replace(self, entry=self.entry.only_flags(names), exit=self.exit.only_flags(names))

    def covers(self, other: CapturedProgram) -> bool:
        """Whether this program can run wherever the other one can."""
        decides = self.decisions is not None or other.decisions is not None
        return not decides and self.accepts(*other.entry.names())


@dataclass(frozen=True)
class CapturedStep:
    """A captured training step.

    Attributes:
        step: the user's function.
        state: the user's objects it works on.
        steady: the program of every step but the first few.
        first: programs of the steps before the optimizer state (or the gradients) exist; often one, maybe none.
        signature: facts that a call must agree on; `reader` reads those of a call.
        seconds: time the capture took.
        changing: names of Python numbers that are inputs of the programs.
        unread: what the programs were proved not to read; of it only the type is a fact.
        first_writes: Python state that the step writes at its first call only; `state` and `signature` are as they
            are afterwards.
        last_writes: Python state that the step writes once, behind the program: the capture is of the call that does it.
        host: what runs behind the programs; None where nothing does. The programs are then those of its head.
        sizes: reads dims that may vary off the arguments of a call; None where none may.
        request: what was asked for, but for the arguments.
        has_no_example: a capture at another size of each dim gave the same programs, so none has a size of its example.
    """

    step: Callable[..., Any]
    state: StepState
    steady: CapturedProgram
    first: tuple[CapturedProgram, ...]
    signature: Signature
    reader: SignatureReader
    seconds: float
    changing: frozenset[str] = frozenset()
    unread: UnreadNames = ALL_READ
    request: StepRequest | None = None
    first_writes: FirstWrites = NO_WRITES
    last_writes: FirstWrites = NO_WRITES
    host: HostCode | None = None
    sizes: SizeGuard | None = None
    has_no_example: bool = False

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
        """The facts of a call with these arguments, as things stand once the step has done its first writes.

        Raises:
            CaptureError: an argument that is neither made of tensors nor a plain value.
        """
        facts = self.first_writes.odd_facts()
        with self.first_writes.done() if self.first_writes else nullcontext():
            signature = self.reader.read(args, kwargs)
        return replace(signature, scalars=signature.scalars + facts) if facts else signature

    def agrees(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call has the facts of the capture, once the step has done its first writes.

        Raises:
            CaptureError: an argument that is neither made of tensors nor a plain value.
        """
        if self.first_writes.odd_facts():
            return False
        with self.first_writes.done() if self.first_writes else nullcontext():
            return self.reader.agrees(args, kwargs, self.signature)
