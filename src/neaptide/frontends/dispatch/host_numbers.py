"""Python numbers that are known only when the step runs: how a trace computes with them and decides by them.

In a trace such a number is a symbol. Arithmetic on symbols is recorded by torch itself. What torch does not record is
recorded here: `min`, `max` and the functions of `math`, and tensors that are made of a symbol. A branch on a symbol is
taken as the host's numbers say and remembered as a decision; the program holds for calls that decide alike.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.objects.places import Replacement
from neaptide.frontends.recording.constant_values import constant_value
from neaptide.frontends.recording.host_part import UNKNOWN, HostPart, Key, KnownValues
from neaptide.frontends.recording.recording import Record
from neaptide.frontends.recording.traced_sizes import is_of_sizes

MAX_ELEMENTS = 1 << 16  # of a tensor of the batch that a decision is worked out from at each call
_NUMBERS = (torch.SymFloat, torch.SymInt)
_MATH = ("acos", "asin", "atan", "cos", "cosh", "exp", "log", "log10", "log2", "pow", "sin", "sinh", "sqrt")
_MATH_TOO = ("tan", "tanh")

Function = Callable[..., Any]


class HostNumbers:
    """The numbers of one trace."""

    def __init__(
        self,
        recorder: Recorder,
        numbers: Mapping[Key, Any],
        slots: Sequence[Key],
        batch: Mapping[Key, torch.Tensor],
    ) -> None:
        self._recorder = recorder
        self._batch = {key: tensor for key, tensor in batch.items() if _is_small_and_whole(tensor)}
        self._slots = slots
        self._known = KnownValues(recorder.recording, numbers, slots, self._batch)
        self._decisions: dict[Record, bool] = {}

    def replacements(self) -> Iterator[Replacement]:
        """What records arithmetic and decisions."""
        yield torch.SymBool, "__bool__", self._decide
        # A comparison that is counted, as in `sum(step >= m for m in milestones)`, is a decision like any other.
        yield torch.SymBool, "__int__", lambda _original: lambda symbol: int(bool(symbol))
        yield torch.SymFloat, "__bool__", lambda _original: lambda symbol: bool(symbol != 0)
        for name in ("max", "min"):
            yield builtins, name, self._extreme
        for name in (*_MATH, *_MATH_TOO):
            yield math, name, self._function
        for name in ("tensor", "as_tensor"):
            yield torch, name, _tensor_of_a_number

    def part(self, after: Mapping[Key, Record]) -> HostPart | None:
        """The decisions so far as a function of the numbers that they depend on; None where there are none.

        `after` gives, by key, the record whose value the number has when the step is over.
        """
        return self._known.part(list(self._decisions.items()), after) if self._decisions else None

    def record_of(self, item: Any) -> Record | None:
        """What gave a tensor or a symbol; None for a number that is known."""
        if isinstance(item, torch.Tensor):
            return self._recorder.record_of(item)
        return self._recorder.record_of_number(item)

    def value_of(self, record: Record) -> Any:
        """What a record holds after all that is recorded so far, or `UNKNOWN`."""
        return self._known.of(record)

    def truth(self, tensor: torch.Tensor, *, of_batch: bool) -> bool | None:
        """The truth of a tensor of one element that depends on no input; None for others.

        `of_batch` says whether it may depend on whole numbers of the batch. Then its truth is a decision from now on: the
        program is for calls with the same one.
        """
        record = self.record_of(tensor)
        value = None if record is None else self._constant(record, of_batch=of_batch)
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
        for of_batch in (False, True):
            value = None if record is None else self._constant(record, of_batch=of_batch)
            if value is not None:
                with private.no_modes():
                    number = int(value)
                if of_batch and self._batch:
                    self.truth(tensor == number, of_batch=True)
                return number
        return None

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether `truth` would know what follows from a tensor."""
        record = self.record_of(tensor)
        return record is not None and self._constant(record, of_batch=True) is not None

    def _constant(self, record: Record, *, of_batch: bool) -> torch.Tensor | None:
        given: dict[Record, torch.Tensor] = {}
        if of_batch:
            inputs = (r for r in self._recorder.recording.records if r.kind == "input")
            of_key = dict(zip(self._slots, inputs, strict=False))
            given = {of_key[key]: content for key, content in self._batch.items()}
        with private.no_modes():
            return constant_value(record, self._recorder.recording, given)

    def _decide(self, original: Function) -> Function:
        def decide(symbol: torch.SymBool) -> bool:
            record = self.record_of(symbol)
            outcome = UNKNOWN if record is None else self.value_of(record)
            if record is None or outcome is UNKNOWN:
                return bool(original(symbol))
            return self._decisions.setdefault(record, bool(outcome))

        return decide

    def _extreme(self, original: Function) -> Function:
        """`min` and `max` of several numbers, a symbol among them, as an operation instead of a branch."""

        @functools.wraps(original)
        def extreme(*args: Any, **kwargs: Any) -> Any:
            given = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
            if kwargs or not any(isinstance(item, _NUMBERS) for item in given):
                return original(*args, **kwargs)
            if all(is_of_sizes(item) for item in given if isinstance(item, _NUMBERS)):
                return reduce(torch.sym_max if original.__name__ == "max" else torch.sym_min, given)
            return reduce(lambda a, b: self._recorder.call_host(original, (a, b)), given)

        return extreme

    def _function(self, original: Function) -> Function:
        """A function of `math` that takes symbols as well."""

        @functools.wraps(original)
        def function(*args: Any) -> Any:
            if not any(isinstance(item, _NUMBERS) for item in args):
                return original(*args)
            return self._recorder.call_host(original, args)

        return function


def _is_small_and_whole(tensor: torch.Tensor) -> bool:
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    return whole and tensor.device.type == "cpu" and tensor.numel() <= MAX_ELEMENTS


def _tensor_of_a_number(original: Function) -> Function:
    """A tensor that is made of a symbol."""

    @functools.wraps(original)
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, _NUMBERS):
            return original(data, *args, **kwargs)
        needs_gradient = kwargs.pop("requires_grad", False)
        options = {**dict(zip(("dtype", "device"), args, strict=False)), **kwargs}
        if options.get("dtype") is None:
            options["dtype"] = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
        return torch.scalar_tensor(data, **options).requires_grad_(needs_gradient)  # type: ignore[arg-type]

    return make
