"""Python numbers that are known only when the step runs: how a trace computes with them and decides by them.

In a trace such a number is a symbol. Arithmetic on symbols is recorded by torch itself. What torch does not record is
recorded here: `min`, `max` and the functions of `math`, and tensors that are made of a symbol. A branch on a symbol is
taken as the host's numbers say and remembered as a decision; the program holds for calls that decide alike.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.recording.constant_values import constant_value
from neaptide.frontends.recording.host_part import UNKNOWN, HostPart, Key, KnownValues
from neaptide.frontends.recording.recording import Record, Recording
from neaptide.frontends.recording.traced_sizes import is_of_sizes

_NUMBERS = (torch.SymFloat, torch.SymInt)
_MATH = ("acos", "asin", "atan", "cos", "cosh", "exp", "log", "log10", "log2", "pow", "sin", "sinh", "sqrt")
_MATH_TOO = ("tan", "tanh")


class HostNumbers:
    """The numbers of one trace.

    Args:
        numbers: by key, the value of the inputs that the host holds.
        slots: the key of each input, in the order of the placeholders.
    """

    def __init__(
        self, numbers: Mapping[Key, Any], slots: Sequence[Key], batch: Mapping[Key, torch.Tensor]
    ) -> None:
        self._numbers = numbers
        self._batch = {key: tensor for key, tensor in batch.items() if _is_small_and_whole(tensor)}
        self._slots = slots
        self._recorder: Recorder | None = None
        self._known = KnownValues(Recording(), {}, ())
        self._decisions: dict[Record, bool] = {}

    @contextlib.contextmanager
    def traced(self, recorder: Recorder) -> Iterator[None]:
        """Record arithmetic and decisions while the context is open."""
        self._recorder = recorder
        self._known = KnownValues(recorder.recording, self._numbers, self._slots, self._batch)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_replaced(torch.SymBool, "__bool__", self._decide))
            stack.enter_context(_replaced(torch.SymBool, "__int__", _as_number))
            stack.enter_context(_replaced(torch.SymFloat, "__bool__", _is_not_zero))
            for name in ("max", "min"):
                stack.enter_context(_replaced(builtins, name, _extreme(recorder)))
            for name in (*_MATH, *_MATH_TOO):
                stack.enter_context(_replaced(math, name, _function(recorder)))
            for name in ("tensor", "as_tensor"):
                stack.enter_context(_replaced(torch, name, _tensor_of_a_number))
            yield

    def part(self, after: Mapping[Key, Record]) -> HostPart | None:
        """The decisions so far as a function of the numbers that they depend on; None where there are none.

        Args:
            after: by key, the record whose value the number has when the step is over.
        """
        if not self._decisions:
            return None
        return self._known.part(list(self._decisions.items()), after)

    def record_of(self, item: Any) -> Record | None:
        """What gave a tensor or a symbol; None for a number that is known."""
        assert self._recorder is not None
        if isinstance(item, torch.Tensor):
            return self._recorder.record_of(item)
        return self._recorder.record_of_number(item)

    def value_of(self, record: Record) -> Any:
        """What a record holds after all that is recorded so far, or `UNKNOWN`."""
        return self._known.of(record)

    def truth(self, tensor: torch.Tensor, *, of_batch: bool) -> bool | None:
        """The truth of a tensor that depends on no input, or on whole numbers of the batch alone; None for others.

        Args:
            tensor: of one element.
            of_batch: whether it may depend on the batch. Then its truth is a decision from now on: the program is for
                calls with the same one.
        """
        record = self.record_of(tensor)
        value = None if record is None else self._constant(record, self._given() if of_batch else {})
        if record is None or value is None:
            return None
        with private.no_modes():
            known = bool(value)
        return self._decisions.setdefault(record, known) if of_batch else known

    def whole_number(self, tensor: torch.Tensor) -> int | None:
        """The number in a tensor of one that depends on no input, or on whole numbers of the batch alone; None for others.

        That the batch gives this number is a decision from now on.
        """
        record = self.record_of(tensor)
        for given in ({}, self._given()):
            value = None if record is None else self._constant(record, given)
            if value is not None:
                with private.no_modes():
                    number = int(value)
                if given:
                    self.truth(tensor == number, of_batch=True)
                return number
        return None

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether `truth` would know what follows from a tensor."""
        record = self.record_of(tensor)
        return record is not None and self._constant(record, self._given()) is not None

    def _given(self) -> dict[Record, torch.Tensor]:
        assert self._recorder is not None
        inputs = (record for record in self._recorder.recording.records if record.kind == "input")
        of_key = dict(zip(self._slots, inputs, strict=False))
        return {of_key[key]: content for key, content in self._batch.items()}

    def _constant(self, record: Record, given: Mapping[Record, torch.Tensor]) -> torch.Tensor | None:
        assert self._recorder is not None
        with private.no_modes():
            return constant_value(record, self._recorder.recording, given)

    def _decide(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def decide(symbol: torch.SymBool) -> bool:
            record = self.record_of(symbol)
            outcome = UNKNOWN if record is None else self.value_of(record)
            if record is None or outcome is UNKNOWN:
                return original(symbol)
            return self._decisions.setdefault(record, bool(outcome))

        return decide


MAX_ELEMENTS = 1 << 16  # of a tensor of the batch that a decision is worked out from at each call


def _is_small_and_whole(tensor: torch.Tensor) -> bool:
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    return whole and tensor.device.type == "cpu" and tensor.numel() <= MAX_ELEMENTS


def _as_number(_original: Callable[..., int]) -> Callable[..., int]:
    """A comparison that is counted, as in `sum(step >= m for m in milestones)`, is a decision like any other."""
    return lambda symbol: int(bool(symbol))


def _is_not_zero(_original: Callable[..., bool]) -> Callable[..., bool]:
    return lambda symbol: bool(symbol != 0)


def _extreme(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`min` and `max` of several numbers, a symbol among them, as an operation instead of a branch."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def extreme(*args: Any, **kwargs: Any) -> Any:
            given = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
            if kwargs or not any(isinstance(item, _NUMBERS) for item in given):
                return original(*args, **kwargs)
            if all(is_of_sizes(item) for item in given if isinstance(item, _NUMBERS)):
                return reduce(torch.sym_max if original is builtins.max else torch.sym_min, given)
            return reduce(lambda a, b: recorder.call_host(original, (a, b)), given)

        return extreme

    return make


def _function(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of `math` that takes symbols as well."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*args: Any) -> Any:
            if not any(isinstance(item, _NUMBERS) for item in args):
                return original(*args)
            return recorder.call_host(original, args)

        return function

    return make


def _tensor_of_a_number(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A tensor that is made of a symbol."""

    @functools.wraps(original)
    def make(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(data, _NUMBERS):
            return original(data, *args, **kwargs)
        needs_gradient = kwargs.pop("requires_grad", False)
        options = {**dict(zip(("dtype", "device"), args, strict=False)), **kwargs}
        if options.get("dtype") is None:
            options["dtype"] = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
        return torch.scalar_tensor(data, **options).requires_grad_(needs_gradient)  # type: ignore[arg-type]

    return make


@contextlib.contextmanager
def _replaced(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
