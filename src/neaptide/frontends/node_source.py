"""Where each traced node comes from: the user's line, the submodule and the phase."""

from __future__ import annotations

import re

import torch

from neaptide.ir.nodes import Source

NO_SEQUENCE = (1 << 64) - 1  # what autograd numbers nodes that belong to no forward op


class SourceMap:
    """Reads the annotations of a trace; backward nodes borrow line and module of their forward op.

    The join is on autograd's sequence number: the forward op and the backward nodes of its gradient carry the
    same one.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._forward: dict[int, Source] = {}
        for node in graph.nodes:
            note = node.meta.get("custom") or {}
            number = node.meta.get("seq_nr")
            if number is None or note.get("phase") is not None or node.op != "call_function":
                continue
            source = _own_source(node, "forward")
            known = self._forward.get(number)
            if source.file and (known is None or not known.file or source.module):
                self._forward[number] = source

    def of(self, node: torch.fx.Node) -> Source:
        """Line, module and phase of a node."""
        note = node.meta.get("custom") or {}
        phase = note.get("phase") or "forward"
        own = _own_source(node, phase)
        number = node.meta.get("seq_nr")
        if phase == "backward" and number is not None and number != NO_SEQUENCE and number in self._forward:
            joined = self._forward[number]
            return Source(joined.file, joined.line, joined.code, joined.module, phase)
        return own


def _own_source(node: torch.fx.Node, phase: str) -> Source:
    note = node.meta.get("custom") or {}
    module = note.get("module", "")
    if "line" in note:
        file, line, code = note["line"]
        return Source(file, line, code, module, phase)
    frames = re.findall(r'File "([^"]+)", line (\d+)[^\n]*\n\s*([^\n]*)', node.meta.get("stack_trace") or "")
    if not frames:
        return Source(module=module, phase=phase)
    file, line, code = frames[-1]
    return Source(file, int(line), code.strip(), module, phase)
