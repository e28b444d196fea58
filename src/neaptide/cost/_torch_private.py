"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 to 2.15.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.autograd import profiler as autograd_profiler

from neaptide.errors import UnsupportedTorch


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One profiler event of interest: an allocation or free (`nbytes` is set) or a named span (it is not)."""

    start_ns: int
    end_ns: int
    name: str
    nbytes: int | None
    address: int


def missing(name: str) -> UnsupportedTorch:
    """The error for a private name that this PyTorch lacks."""
    return UnsupportedTorch(
        f"torch {torch.__version__} lacks {name}",
        why="measured allocator peaks are read from the profiler's event tree",
        next_step="use a release from torch 2.11 on that is listed as supported",
    )


def storage_identity(storage: torch.UntypedStorage) -> int:
    """The address of the storage object: one number per storage while it lives."""
    return int(storage._cdata)


def has_argument(operation: Any, name: str) -> bool:
    """Whether the schema of an operation has an argument of that name; False for one without a schema."""
    schema = getattr(operation, "_schema", None)
    return schema is not None and any(argument.name == name for argument in schema.arguments)


def direct_call(operation: Any) -> Any:
    """What an operator overload calls in its turn, which saves a Python frame (0.3 µs of about 1.7); else itself."""
    return getattr(operation, "_op", operation) if isinstance(operation, torch._ops.OpOverload) else operation


_CYCLES_PER_S: Final = 2e9  # no card has a faster clock by much


def keep_busy(seconds: float) -> None:
    """Have the current CUDA stream do nothing for at least about so long; the host goes on."""
    if seconds > 0:
        sleep: Any = getattr(torch.cuda, "_sleep", None)
        if sleep is None:
            raise UnsupportedTorch(
                f"torch {torch.__version__} lacks torch.cuda._sleep",
                why="operations are timed while the card is kept busy",
                next_step="use a release from torch 2.11 on that is listed as supported",
            )
        sleep(int(seconds * _CYCLES_PER_S))


def memory_profiler() -> Any:
    """A context manager that records events of the allocators; read them with `read_events` after its end."""
    # Kineto prints a line to stderr at every start and stop unless its log level is above all of them.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    make: Any = autograd_profiler.profile
    return make(profile_memory=True, record_shapes=False, with_stack=False)


def read_events(profiler: Any, span_prefix: str, device: torch.device) -> list[RawEvent]:
    """Allocator events on a device, and the spans whose name starts with `span_prefix`, in time order."""
    results = getattr(profiler, "kineto_results", None)
    if results is None or not hasattr(results, "experimental_event_tree"):
        raise missing("_KinetoProfile.experimental_event_tree")
    tag: Any = getattr(getattr(torch._C, "_profiler", None), "_EventType", None)
    if tag is None:
        raise missing("torch._C._profiler._EventType")
    events = list(_walk(results.experimental_event_tree(), tag, span_prefix, device))
    # The tree is in order per thread already; the stable sort merges the threads.
    events.sort(key=lambda event: event.start_ns)
    return events


def _walk(roots: list[Any], tag: Any, span_prefix: str, device: torch.device) -> Iterator[RawEvent]:
    """Pre-order; with an explicit stack, since operators nest as deep as the user's code."""
    stack = list(reversed(roots))
    while stack:
        event = stack.pop()
        stack.extend(reversed(event.children))
        start_ns = int(event.start_time_ns)
        if event.tag == tag.Allocation:
            fields = event.typed[1]
            if fields.device.type == device.type and device.index in (None, fields.device.index):
                yield RawEvent(start_ns, start_ns, "", int(fields.alloc_size), int(fields.ptr or 0))
        elif event.tag == tag.TorchOp and event.name.startswith(span_prefix):
            yield RawEvent(start_ns, start_ns + int(event.duration_time_ns), str(event.name), None, 0)
