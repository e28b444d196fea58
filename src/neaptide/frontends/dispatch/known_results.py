"""What operations give, known from a run before, so that a second run of a step is cheaper than the first."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.recording import Recording, TensorFacts
from neaptide.frontends.recording.same_twice import FIRST_OPERAND, Lister, Listing, shown_of, tensors_of

_DEPENDS_ON_DATA = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


class KnownResults:
    """Makes the results of the forward operations that a run before called likewise, without their kernels.

    A fake kernel looks at nothing but the facts of its operands. So as long as every operation of two runs is the
    same, and its result too, the next one gives the same.

    Args:
        before: the run before.
        names: of the inputs of this run, in order.
        mode: under which this run's fake tensors live.
    """

    def __init__(self, before: Listing, names: Sequence[str], mode: Any) -> None:
        self._before = before
        self._mode = mode
        self._lister = Lister(names)
        self._listed = 0  # records
        self._is_alike = True

    def result(
        self,
        recording: Recording,
        phase: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        first: Any,
    ) -> Any:
        """The result of the next call of this run; None where only its kernel knows.

        Args:
            recording: of this run, up to this call.
            phase: of the call.
            target: the operation.
            args: records and plain values.
            kwargs: likewise.
            first: the first argument itself.
        """
        if not self._is_alike or phase != "forward":
            self._is_alike = False
            return None
        self._catch_up(recording)
        at = len(self._lister.rows)
        if not self._is_alike or at >= len(self._before.rows):
            return None
        known = self._before.results[at]
        if known is None or self._before.rows[at] != self._lister.row(phase, target, args, kwargs):
            return None
        if known is FIRST_OPERAND:
            return first
        return self._made(known) if _is_plain(target) and all(map(_is_dense, tensors_of(known))) else None

    def _catch_up(self, recording: Recording) -> None:
        while self._listed < len(recording.records):
            record = recording.records[self._listed]
            self._listed += 1
            self._lister.add(record)
            at = len(self._lister.rows) - 1
            if record.kind == "call" and self._is_alike:
                self._is_alike = (
                    at < len(self._before.rows)
                    and self._before.rows[at] == self._lister.rows[at]
                    and _shown(self._before.calls[at].result) == _shown(record.result)
                )

    def _made(self, known: Any) -> Any:
        if isinstance(known, TensorFacts):
            return private.new_fake(self._mode, known.shape, known.strides, known.dtype, known.device)
        if isinstance(known, tuple):
            return tuple([self._made(item) for item in known])
        return known


@functools.cache
def _is_plain(target: Any) -> bool:
    """Whether an operation writes to no operand, and its result has the same facts whatever the elements are."""
    schema = target._schema  # noqa: SLF001 - the public way to it is deprecated
    return not schema.is_mutable and not _DEPENDS_ON_DATA & set(target.tags)


def _is_dense(facts: TensorFacts) -> bool:
    return (
        facts.layout is torch.strided
        and facts.offset == 0
        and facts.flags == (False, False)
        and all(isinstance(size, int) for size in (*facts.shape, *facts.strides))
    )


def _shown(result: Any) -> Any:
    return list(map(shown_of, tensors_of(result)))
