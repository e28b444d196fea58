"""Functions of torch that are other ones while a step is traced: as they are, a trace would not see what they do.

* `torch.distributed.all_reduce` is a reduction that can be traced and a copy of its result, as Dynamo does it. One that is
  asynchronous stays as it is, and is refused.
* `copy.deepcopy` of a fake tensor is a clone of it, as that of a real one is.
* Batch norm with `momentum=None` divides by a count of batches in Python, and hands the quotient to an operation that takes
  plain numbers only. The quotient is a symbol: a number stands for it, and the recorder writes down the symbol.
* Activation checkpointing runs as in eager, and its runs are noted.
* CTC asks for the lengths of the sequences, by which its table is as wide as the longest target. Python numbers are a
  literal. Of lengths in tensors the longest is worked out where it depends on the batch alone, and decides which
  program a call runs. The operations are those of eager, in the same order.
"""

from __future__ import annotations

import contextlib
import copy as copying
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.frontends._torch_private import resolve
from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.kernels.true_results import longest_target
from neaptide.frontends.objects.places import Replacement
from neaptide.frontends.recording.recording import CheckpointRun, Notes

_CHECKPOINT = "torch.utils.checkpoint"
_FUNCTIONAL = "torch.distributed._functional_collectives"
_STAND_IN = 0.123456789012345  # no argument of a batch norm that anyone would write
_MOMENTUM_AT = 6  # among the arguments of a batch norm
_MEAN, _SUM = 1, 2  # of `reduction`, as torch counts them
_AXES = 3  # of scores: time, batch, classes


def torch_functions(
    recorder: Recorder, host: HostNumbers, notes: Notes, *, undone: bool
) -> Iterator[Replacement]:
    """What stands in for them in the trace of a recorder; with `undone`, checkpointed calls are plain ones."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        for module in (distributed, sys.modules["torch.distributed.distributed_c10d"]):
            yield module, "all_reduce", _all_reduce
    yield resolve("torch._subclasses.fake_tensor", "FakeTensor"), "__deepcopy__", lambda _original: _deepcopy
    yield torch, "batch_norm", functools.partial(_batch_norm, recorder)
    yield importlib.import_module("torch.nn.modules.batchnorm"), "float", lambda _nothing: _float_of
    yield torch, "ctc_loss", functools.partial(_ctc_loss, host)
    yield from _noted_checkpoints(notes, undone)


def _all_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    distributed: Any = torch.distributed
    in_place = resolve(_FUNCTIONAL, "all_reduce_inplace")
    names = resolve(_FUNCTIONAL, "REDUCE_OP_TO_STR")

    @functools.wraps(original)
    def all_reduce(tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
        op = distributed.ReduceOp.SUM if op is None else op
        name = names.get(op)
        if async_op or name is None:
            return original(tensor, op, group, async_op)
        in_place(tensor, name, distributed.group.WORLD if group is None else group)
        return None

    return all_reduce


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        return torch.Tensor.__deepcopy__(self, memo)  # type: ignore[no-untyped-call]  # which raises
    copy = self.detach().clone(memory_format=torch.preserve_format)
    if isinstance(self, torch.nn.Parameter):  # as torch does, without gradient and attributes
        copy = torch.nn.Parameter(copy, self.requires_grad)
    else:
        copy.requires_grad_(self.requires_grad)
        own = {key: content for key, content in vars(self).items() if key not in vars(copy)}
        memo[id(self)] = copy
        vars(copy).update(copying.deepcopy(own, memo))
        if self.grad is not None:
            copy.grad = copying.deepcopy(self.grad, memo)
    memo[id(self)] = copy
    return copy


def _batch_norm(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def batch_norm(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= _MOMENTUM_AT or not isinstance(args[_MOMENTUM_AT], torch.SymFloat):
            return original(*args, **kwargs)
        with recorder.stands_for(_STAND_IN, args[_MOMENTUM_AT]):
            return original(*args[:_MOMENTUM_AT], _STAND_IN, *args[_MOMENTUM_AT + 1 :], **kwargs)

    return batch_norm


def _float_of(item: Any) -> Any:
    """The number in a tensor, as a symbol where only the data knows it."""
    return item.item() if isinstance(item, torch.Tensor) else float(item)


def _ctc_loss(host: HostNumbers, original: Callable[..., Any]) -> Callable[..., Any]:
    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = _MEAN,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        in_tensors = isinstance(target_lengths, torch.Tensor)
        longest = host.whole_number(target_lengths.max()) if in_tensors else max(target_lengths, default=0)
        if longest is None or log_probs.device.type != "cpu":
            given = (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
            result: torch.Tensor = original(*given)
            return result
        with longest_target(longest):
            batched = log_probs if log_probs.dim() == _AXES else log_probs.unsqueeze(1)
            each = _each_loss(batched, targets, (input_lengths, target_lengths), blank, zero_infinity)
        if reduction == _MEAN:
            counts = target_lengths
            if not in_tensors:
                counts = torch.tensor(list(target_lengths), dtype=each.dtype, device=each.device)
            mean: torch.Tensor = (each / counts.clamp_min(1)).mean()
            return mean
        if reduction == _SUM:
            return each.sum()
        return each if batched is log_probs else each.squeeze(0)

    return ctc_loss


def _each_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, lengths: tuple[Any, Any], blank: int, zero_infinity: bool
) -> torch.Tensor:
    """The loss of each sequence, as `ctc_loss` in torch's LossCTC.cpp has it on a CPU."""
    kernels = torch.ops.aten._ctc_loss  # noqa: SLF001
    if isinstance(lengths[0], torch.Tensor):
        kernel, given = kernels.Tensor, lengths
    else:
        kernel, given = kernels.default, (list(lengths[0]), list(lengths[1]))
    targets = targets.to(log_probs.device, torch.int64)
    result: torch.Tensor = kernel(log_probs, targets, *given, blank, zero_infinity)[0]
    if zero_infinity:
        zero = torch.zeros((), dtype=result.dtype, device=result.device)
        result = torch.where(result == math.inf, zero, result)
    return result


# -- activation checkpointing


def _noted_checkpoints(notes: Notes, undone: bool) -> Iterator[Replacement]:
    """Note the runs of each function under `torch.utils.checkpoint`; `undone`: it is a plain one, and nothing runs again.

    No generator is asked for its state: a trace draws nothing. Which runs draw the same numbers is noted.
    """
    module = importlib.import_module(_CHECKPOINT)
    resolve(_CHECKPOINT, "CheckpointFunction")
    resolve(_CHECKPOINT, "_is_compiling")
    yield module, "CheckpointFunction", functools.partial(_function, notes, undone)
    yield module, "_is_compiling", lambda _original: _is_not_compiling  # a recorder is taken for a compiler
    for name in _called_generators(module):
        yield module, name, functools.partial(_generator, notes, undone)


class _NotedCall:
    """One checkpointed call. Called itself, it runs the user's function again, as the backward pass does.

    `preserves_draws`: it gives its generators the state of the first run while it runs again.
    """

    def __init__(self, function: Callable[..., Any], preserves_draws: bool, notes: Notes) -> None:
        self._function, self._preserves_draws, self._notes = function, preserves_draws, notes
        self._first = CheckpointRun()

    def first_run(self) -> contextlib.AbstractContextManager[None]:
        """The run of the forward pass is noted."""
        return self._notes.noted(runs=(*self._notes.runs, self._first))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A run of the backward pass, noted."""
        run = CheckpointRun(self._first, self._preserves_draws)
        runs = (run,) if self._preserves_draws else (*self._notes.runs, run)
        with self._notes.noted(runs=runs, sequences=[]):
            return self._function(*args, **kwargs)


def _function(notes: Notes, undone: bool, original: Any) -> type:
    """Stands in for the reentrant checkpoint function."""

    class NotedFunction:
        @staticmethod
        def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
            call = _NotedCall(function, preserve_rng_state, notes)
            has_begun = False

            def run(*args: Any) -> Any:
                nonlocal has_begun
                if has_begun:
                    return call(*args)
                has_begun = True
                with call.first_run():
                    return function(*args)

            return run(*args) if undone else original.apply(run, False, *args)

    return NotedFunction


def _generator(
    notes: Notes, undone: bool, original: Callable[..., Iterator[None]]
) -> Callable[..., Iterator[None]]:
    """Stands in for what a checkpoint that is not reentrant does around the call."""
    signature = inspect.signature(original)  # torch 2.14 takes by name what earlier ones take by position

    def noted(*args: Any, **kwargs: Any) -> Iterator[None]:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        asked = given.arguments
        call = _NotedCall(asked["fn"], asked["preserve_rng_state"], notes)
        asked["fn"], asked["preserve_rng_state"] = call, False
        with call.first_run():
            if undone:
                yield
            else:
                yield from original(*given.args, **given.kwargs)

    return noted


def _is_not_compiling(*_args: Any) -> bool:
    return False


def _nothing() -> None:
    """Stands for a function that this torch does not have."""


def _called_generators(module: Any) -> list[str]:
    """What `checkpoint` calls around a non-reentrant region; torch 2.15 calls another function than 2.11 to 2.13.

    A name that `checkpoint` does not call would be replaced to no effect, and dropout would be wrong without a word.
    """
    called: set[str] = set()
    for name in ("checkpoint", "_checkpoint_impl"):
        function = inspect.unwrap(getattr(module, name, _nothing))
        called.update(function.__code__.co_names)
    found = sorted(name for name in called if name.startswith("_checkpoint_without_reentrant_generator"))
    if not found:
        resolve(_CHECKPOINT, "_checkpoint_without_reentrant_generator, called by checkpoint")
    return found
