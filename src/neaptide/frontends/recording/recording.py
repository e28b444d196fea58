"""What a trace leaves behind: one record for each operation, in the order in which they were called.

And what is known, while a step is traced, about the operation that is recorded next.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import keyword
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.traced_sizes import traced_size, traced_sizes

RecordKind = Literal["input", "literal", "call", "output"]


class Line(NamedTuple):
    """A line of source code; its text is read when it is asked for."""

    file: str
    number: int

    @property
    def code(self) -> str:
        """What is written there; empty where the file cannot be read."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def location(self) -> str:
        """`file:line: code`, for messages."""
        return f"{self.file}:{self.number}: {self.code}"


@dataclass(eq=False, slots=True)
class TensorFacts:
    """A tensor as it was when its record was made; it may be given another shape in place later.

    Attributes:
        storage: its bytes; kept, because `storage_key`, the storage's identity, is its own only while it lives.
        shape: sizes; expressions where a dim is dynamic, symbolic numbers where only the data knows them.
        strides: empty for a layout that has none.
        offset: into the storage, in elements.
        device: that the step sees, not that of the fake.
        flags: whether it is a lazily conjugated and a lazily negated view.
    """

    storage: torch.UntypedStorage | None
    storage_key: int
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    flags: tuple[bool, bool]

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorFacts:
        """Facts of a tensor as it is now."""
        layout = tensor.layout
        if layout is not torch.strided:
            return TensorFacts(
                *(None, 0, traced_sizes(tensor.shape), (), 0),
                *(tensor.dtype, tensor.device, layout, (False, False)),
            )
        storage = tensor.untyped_storage()
        return TensorFacts(
            storage,
            private.storage_key(storage),
            traced_sizes(tensor.shape),
            traced_sizes(tensor.stride()),
            traced_size(tensor.storage_offset()),
            tensor.dtype,
            tensor.device,
            layout,
            (tensor.is_conj(), tensor.is_neg()),
        )


@dataclass(eq=False, slots=True, frozen=True)
class CheckpointRun:
    """A run of a function that the user checkpoints.

    Attributes:
        first: the run of the forward pass, which this one repeats; None for that one.
        draws_alike: random numbers are those of the first run.
    """

    first: CheckpointRun | None = None
    draws_alike: bool = False


@dataclass(eq=False, slots=True)
class Record:
    """An input, a literal tensor, a call, or (last of all) the outputs.

    Attributes:
        name: unique in the recording.
        target: the operation or Python function that is called; else None.
        args: records, plain values and tuples of those; for a literal, the tensor itself; what the step leaves
            behind for the outputs, where something else than a record is no value of the program.
        result: facts of the tensor that it gives, a tuple of those, or a number that is known or symbolic.
        line: of the code outside torch that called it.
        module: dotted path of the submodule that was running.
        phase: forward, backward or optimizer.
        runs: of checkpointed functions around it, outermost first; from the innermost on that draws as its first run.
        observed: name of the gradient that it marks.
        sequence: of the autograd node that it belongs to.
    """

    kind: RecordKind
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    line: Line | None = None
    module: str = ""
    phase: str = "forward"
    runs: tuple[CheckpointRun, ...] = ()
    observed: str | None = None
    sequence: int | None = None

    @property
    def is_recomputed(self) -> bool:
        """Whether it belongs to a recomputation by a checkpoint of the user's."""
        return any(run.first is not None for run in self.runs)

    def literal(self) -> Any:
        """What a literal holds: of a fake tensor, which keeps its numbers beside it, those; None where they are unknown."""
        content = self.args[0]
        is_tensor = isinstance(content, torch.Tensor) and private.is_fake(content)
        return content.constant if is_tensor else content

    def operands(self) -> Iterator[Record]:
        """The records that it takes, with repetitions."""
        return _records_in((*self.args, *self.kwargs.values()))

    def tensors(self) -> Iterator[TensorFacts]:
        """The tensors that it gives, in order."""
        return _facts_in((self.result,))

    def storages(self) -> list[int]:
        """Identities of the storages of what it gives."""
        return [facts.storage_key for facts in self.tensors()]

    def written(self) -> list[Record]:
        """The records whose tensors a call overwrites, by its schema."""
        found: list[Record] = []
        for position, argument in written_arguments(self.target):
            given = self.args[position] if position < len(self.args) else self.kwargs.get(argument.name)
            found += _records_in((given,))
        return found


def _facts_in(items: tuple[Any, ...]) -> Iterator[TensorFacts]:
    for item in items:
        if isinstance(item, TensorFacts):
            yield item
        elif isinstance(item, tuple):
            yield from _facts_in(item)


@functools.cache
def written_arguments(target: Any) -> tuple[tuple[int, Any], ...]:
    """Position and schema of the arguments that an operation says it overwrites."""
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        return ()
    arguments = enumerate(target._schema.arguments)  # noqa: SLF001 - the schema has no public name
    return tuple((at, a) for at, a in arguments if a.alias_info is not None and a.alias_info.is_write)


def _records_in(items: tuple[Any, ...]) -> Iterator[Record]:
    for item in items:
        if isinstance(item, Record):
            yield item
        elif isinstance(item, tuple):
            yield from _records_in(item)


class Recording:
    """All records of a trace: inputs first, then literals and calls in the order of the calls, then the outputs."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._counts: dict[str, int] = {}
        self._names: set[str] = set()

    def users(self) -> dict[Record, list[Record]]:
        """Who takes each record; one that nobody takes has no entry. O(records)."""
        users: dict[Record, list[Record]] = {}
        for record in self.records:
            for operand in record.operands():
                users.setdefault(operand, []).append(record)
        return users

    def new_name(self, stem: str) -> str:
        """A name that is not taken: the stem, or the stem and a number where it is taken or a word of Python."""
        base, number = _NUMBERED.fullmatch(stem).groups()  # type: ignore[union-attr]
        name = stem
        count = int(number) if number is not None and stem not in self._names else self._counts.get(base, 0)
        if number is None and stem in _WORDS:
            count += 1
            name = f"{base}_{count}"
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        self._counts[base] = count
        return name


_NUMBERED = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?")
_WORDS = frozenset({*keyword.kwlist, *vars(builtins)})


@functools.cache
def stem_of(target: Any) -> str:
    """What calls of an operation or function are named after: `matMul` becomes `mat_mul`."""
    packet = getattr(target, "overloadpacket", target)
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", packet.__name__).lower()


class Notes:
    """What is known of the operation that is recorded next. Whoever changes a note puts the former one back.

    Attributes:
        module: as in `Record`, and so `phase`, `runs` and `observed`.
        sequences: of the autograd nodes whose backward runs now, innermost last.
        consumed: sequence numbers of those that ran in a backward which is not made to be differentiated.
        is_graph_kept: the backward that runs is made to be differentiated (`create_graph=True`).
        branched: names of the autograd nodes that ran another formula than in eager, by sequence number.
        replaced: sequence numbers of those whose gradients were made again, by eager's formula.
        flag_lines: where `requires_grad` of a tensor was last set, by its identity.
    """

    def __init__(self) -> None:
        self.module = ""
        self.phase = "forward"
        self.runs: tuple[CheckpointRun, ...] = ()
        self.observed: str | None = None
        self.sequences: list[int] = []
        self.consumed: set[int] = set()
        self.is_graph_kept = False
        self.branched: dict[int, str] = {}
        self.replaced: set[int] = set()
        self.flag_lines: dict[int, Line] = {}

    @contextlib.contextmanager
    def noted(self, **notes: Any) -> Iterator[None]:
        """Set some notes, by attribute, for the time of the context."""
        before = {name: getattr(self, name) for name in notes}
        vars(self).update(notes)
        try:
            yield
        finally:
            vars(self).update(before)
