"""Records the operations that a step dispatches below autograd, while fake tensors stand for the real ones."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.kernels.true_results import FAKE_KERNELS, with_true_results
from neaptide.frontends.recording.line_notes import calling_line
from neaptide.frontends.recording.recording import Line, Notes, Record, Recording, TensorFacts, stem_of
from neaptide.frontends.recording.trace_values import qualified
from neaptide.frontends.recording.traced_sizes import is_of_data, is_of_sizes, traced_size
from neaptide.frontends.source.trace_errors import unknown_shape

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_FLOATS = frozenset({torch.SymFloat, float, int})
_FLOAT_ARITHMETIC = frozenset(
    {operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.neg}
)
_PLAIN = (
    *(bool, int, float, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, every operation and all arithmetic on symbolic numbers is recorded.

    It is entered inside of the fake mode, which runs the operations.
    """

    def __init__(self, notes: Notes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Symbolic numbers report to this mode, and user's modes run before.
        self._mode_key = private.TRACING_MODE_KEY
        self._notes = notes
        self.recording = Recording()
        self._of_tensor = WeakTensorKeyDictionary()
        self._of_number: dict[Any, Record] = {}  # by symbolic node
        self._literals = 0
        self._stand_ins: dict[float, Any] = {}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether modes of the user run before this one."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps the handler, at a cost for each operation; compiled code runs eagerly in a trace."""
        return False

    supports_higher_order_operators = True  # they come here, to be refused

    # -- inputs and outputs ---------------------------------------------------------------------------------------

    def add_input(self, tensor: torch.Tensor) -> None:
        """Record an input of the program."""
        record = Record("input", self.recording.new_name("input"), None, (), {}, TensorFacts.of(tensor))
        self.recording.records.append(record)
        self._of_tensor[tensor] = record

    def record_of(self, tensor: torch.Tensor) -> Record | None:
        """What gave a tensor; None for one that the trace does not know."""
        found: Record | None = self._of_tensor.get(tensor)  # type: ignore[no-untyped-call]
        return found

    def finish(self, outputs: Sequence[Any]) -> Recording:
        """The recording, with what the step leaves behind."""
        args = self._arguments(tuple(outputs))
        self.recording.records.append(Record("output", self.recording.new_name("output"), None, args, {}))
        return self.recording

    # -- operations -----------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return args[0].device
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001
            raise no_operation(func, _location(calling_line()))
        if func.namespace == "c10d":
            raise CaptureError(
                f"the step talks to other processes by {func}",
                where=_location(calling_line()),
                why="it takes a group of processes as an object, which no program can carry",
                next_step="use torch.distributed.all_reduce without async_op, or a function of "
                "torch.distributed._functional_collectives",
            )
        if any(kind not in _PLAIN_TENSORS and kind is not private.FAKE_TENSOR for kind in types):
            return NotImplemented  # a tensor class with a meaning of its own: its parts come here one by one
        if private.would_be_decomposed(func, args, kwargs):  # in inference mode autograd does not do it
            with self:
                return func.decompose(*args, **kwargs)
        if func is torch.ops.aten.is_nonzero.default:
            with self:
                return (args[0] != 0).item()
        taken = self._arguments(args)
        named = {name: self._argument(argument) for name, argument in kwargs.items()}
        result = _run(func, args, kwargs)
        if torch.Tag.data_dependent_output in func.tags and not isinstance(result, (torch.Tensor, *_SYMBOLS)):
            return result  # a number that was read from a literal tensor
        result = with_true_results(result, func, args, kwargs)
        target = torch.ops.aten.lift_fresh_copy.default if func is torch.ops.aten.lift_fresh.default else func
        record = self._add("call", stem_of(target), target, taken, named)
        record.result = self._follow(result, record)
        for facts in record.tensors():
            if any(type(size) is not int and is_of_data(size) for size in facts.shape):
                raise unknown_shape(_location(record.line), stem_of(record.target))
        return result

    def _arguments(self, items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._argument(item) for item in items])

    def _argument(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            record = self.record_of(item)
            return self._literal(item) if record is None else record
        if isinstance(item, (tuple, list)):
            return self._arguments(item)
        if isinstance(item, _SYMBOLS):
            known = private.known_number(item)
            return self._number(item) if known is None else known
        if self._stand_ins and type(item) is float and item in self._stand_ins:
            return self._number(self._stand_ins[item])
        return item if isinstance(item, _PLAIN) else self._literal(item)

    def _number(self, symbol: Any) -> Any:
        """What gave a symbolic number; the expression of a size; the number itself where nothing is known of it."""
        found = self._of_number.get(symbol.node)
        return traced_size(symbol) if found is None else found

    def _literal(self, content: Any) -> Record:
        """A tensor that the step writes down, or an object that no program can carry (a random generator, say)."""
        stem = f"_tensor_constant{self._literals}"
        self._literals += 1
        return self._add("literal", stem, None, (content,), {})

    def _follow(self, result: Any, record: Record) -> Any:
        """Remembers which record gave the tensors and numbers of a result; returns what is kept of it."""
        if isinstance(result, torch.Tensor):
            self._of_tensor[result] = record
            return TensorFacts.of(result)
        if isinstance(result, _SYMBOLS):
            self._of_number.setdefault(result.node, record)
            return result
        if isinstance(result, (tuple, list)):
            return tuple([self._follow_element(item, record, at) for at, item in enumerate(result)])
        return result

    def _follow_element(self, item: Any, whole: Record, position: int) -> Any:
        if item is None:
            return None
        element = self._add("call", "getitem", operator.getitem, (whole, position), {})
        element.result = self._follow(item, element)
        return element.result

    def _add(
        self, kind: Any, stem: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Record:
        notes = self._notes
        record = Record(
            kind,
            self.recording.new_name(stem),
            target,
            args,
            kwargs,
            None,
            calling_line(),
            notes.module,
            notes.phase,
            notes.runs,
            notes.observed,
            notes.sequences[-1] if notes.sequences else private.next_sequence() - 1,
        )
        self.recording.records.append(record)
        return record

    # -- numbers that are known when the program runs ---------------------------------------------------------------

    def __sym_dispatch__(
        self, func: Callable[..., Any], _types: Sequence[type], args: tuple[Any, ...], _kwargs: Any
    ) -> Any:
        if func is operator.mul:  # by the integer one
            if isinstance(args[1], int) and args[1] == 1:
                return args[0]
            if isinstance(args[0], int) and args[0] == 1:
                return args[1]
        if all(is_of_sizes(arg) for arg in args if isinstance(arg, _SYMBOLS)):
            result = func(*args)
            if isinstance(result, torch.SymFloat):  # no size: the program has to compute it
                self._add_host_call(func, args, result)
            return result
        if func in _FLOAT_ARITHMETIC and all(type(arg) in _FLOATS for arg in args):
            # No formula is kept, for it costs a millisecond and a branch on the number is refused either way.
            result = private.new_symbolic_float(args)
        else:
            result = func(*args)
        if isinstance(result, _SYMBOLS):
            self._add_host_call(func, args, result)
        return result

    @contextlib.contextmanager
    def stands_for(self, stand_in: float, symbol: torch.SymFloat) -> Iterator[None]:
        """While the context is open, a number among the arguments stands for a symbolic one.

        For operations that take no symbols and whose result's geometry does not depend on the number.
        """
        self._stand_ins[stand_in] = symbol
        try:
            yield
        finally:
            del self._stand_ins[stand_in]

    def call_host(self, function: Callable[..., Any], args: tuple[Any, ...]) -> torch.SymFloat:
        """Record a call of a Python function of numbers, a symbolic one among them; gives what it returns."""
        result = private.new_symbolic_float(args)
        self._add_host_call(function, args, result)
        return result

    def record_of_number(self, symbol: Any) -> Record | None:
        """What gave a symbolic number; None for one that is known."""
        return self._of_number.get(symbol.node)

    def _add_host_call(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> None:
        taken = tuple([self._number(arg) if isinstance(arg, _SYMBOLS) else arg for arg in args])
        record = self._add("call", stem_of(function), function, taken, {})
        self._follow(result, record)
        record.result = result


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation on fake tensors and, maybe, numbers that only the data knows."""
    items = (*args, *kwargs.values())
    if not any(isinstance(item, _SYMBOLS) for item in items):
        return FAKE_KERNELS.get(func, func)(*args, **kwargs)
    for item in items:
        if isinstance(item, torch.Tensor):  # a literal's elements would be computed on, and become NaN
            private.forget_elements(item)
    if torch.Tag.pointwise not in func.tags:
        return FAKE_KERNELS.get(func, func)(*args, **kwargs)
    # The number decides elements only, no shape and no type, and torch remembers what plain numbers give.
    return func(*map(_stand_in, args), **{name: _stand_in(item) for name, item in kwargs.items()})


def _stand_in(item: Any) -> Any:
    return 1.0 if type(item) is torch.SymFloat else item


def no_operation(function: Any, where: str | None) -> CaptureError:
    """The refusal of a Python function on tensors that no program can call."""
    return CaptureError(
        f"the step uses {qualified(function)}, which is no tensor operation",
        where=where,
        why="neaptide has no meaning for it",
    )


def _location(line: Line | None) -> str | None:
    return None if line is None else line.location
