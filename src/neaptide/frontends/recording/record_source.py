"""Where each record comes from: the user's line, the submodule and the phase."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.frontends.recording.recording import Record
from neaptide.ir.nodes import Source

NO_SEQUENCE = (1 << 64) - 1  # what autograd numbers nodes that belong to no forward op


class SourceMap:
    """Reads the notes on the records of a trace; backward calls borrow line and module of their forward op.

    The join is on autograd's sequence number: the forward op and the backward nodes of its gradient carry the
    same one.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._forward: dict[int, Record] = {}
        for record in records:
            is_forward = record.phase == "forward" or record.is_recomputed
            if record.kind != "call" or not is_forward or record.sequence is None:
                continue
            known = self._forward.get(record.sequence)
            if record.line is not None and (known is None or record.module):
                self._forward[record.sequence] = record

    def of(self, record: Record) -> Source:
        """Line, module and phase of a record."""
        phase, number = record.phase, record.sequence
        is_backward = phase == "backward" and not record.is_recomputed
        if is_backward and number is not None and number != NO_SEQUENCE:
            record = self._forward.get(number, record)
        line = record.line
        if line is None:
            return Source(module=record.module, phase=phase)
        return Source(line.file, line.number, line.code, record.module, phase)
