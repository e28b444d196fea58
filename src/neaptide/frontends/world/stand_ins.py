"""What stands in for functions and classes of the outside world during a trace, and refuses when the user asks."""

from __future__ import annotations

import functools
import linecache
import os
import random
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from neaptide.cost.timing import generator_ops  # noqa: F401 - registers the operations
from neaptide.errors import CaptureError
from neaptide.frontends.objects.values import is_array
from neaptide.frontends.recording.line_notes import calling_frame
from neaptide.frontends.source.call_site import direct_user, is_observed, is_users_frame, users_frame
from neaptide.frontends.source.trace_errors import location, users_line

_WHY = "it would be read once, at capture, and never again when the captured program runs"


def outside_error(what: str, next_step: str = "") -> CaptureError:
    """The error for something that is asked of the outside world by the user's line that is running now."""
    return CaptureError(
        what,
        where=location(users_line(traceback.extract_stack())),
        why=_WHY,
        next_step=next_step or "read it outside the step and pass it as an argument",
    )


def clock_error(clock: str, where: str | None) -> CaptureError:
    """The error for a time that would decide something."""
    return CaptureError(
        f"the step uses the time that {clock} gives",
        where=where,
        why=_WHY,
        next_step="measure outside the step, or pass the time as an argument",
    )


class ClockReading:
    """A time, or a difference of times. Whatever would make it decide something is refused.

    Timing a part of a step for a log that is switched off is harmless; a time that reaches a tensor, a branch, a
    text or the outside is not. It is no number, so nothing in C can take its value.
    """

    def __init__(self, clock: str, where: str | None) -> None:
        self.clock = clock
        self.where = where

    def __repr__(self) -> str:
        raise self.refuse()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise self.refuse()

    def refuse(self) -> CaptureError:
        """The error for using it, at the line that runs now."""
        return clock_error(self.clock, location(users_line(traceback.extract_stack())))

    def _with(self, other: Any) -> ClockReading:
        if isinstance(other, (ClockReading, int, float)) and not isinstance(other, bool):
            return ClockReading(self.clock, self.where)
        raise self.refuse()


class Identity(int):
    """What `id` or the default `hash` gives: good as a key and for equality, but not as a number."""

    __slots__ = ()


def _refusing(make: Callable[[Any], CaptureError]) -> Callable[..., Any]:
    def refuse(self: Any, *_args: Any) -> Any:
        raise make(self)

    return refuse


def _identity_error(_identity: Any) -> CaptureError:
    return outside_error("the step computes with the identity of an object", "use a number of your own")


def _names(words: str) -> list[str]:
    return [f"__{word}__" for word in words.split()]


_SUMS = _names("add radd sub rsub mul rmul truediv floordiv")
_OTHERS = _names("int float round trunc floor ceil abs neg lt le gt ge rtruediv rfloordiv mod rmod pow rpow")
_OTHERS += _names("divmod rdivmod and rand or ror xor rxor lshift rshift invert")
_OF_KEYS = _names("bool index str format hash eq ne complex array")

for _name in _SUMS:
    setattr(ClockReading, _name, ClockReading._with)  # noqa: SLF001
    setattr(Identity, _name, _refusing(_identity_error))
for _name in _OTHERS:
    setattr(ClockReading, _name, _refusing(ClockReading.refuse))
    setattr(Identity, _name, _refusing(_identity_error))
for _name in _OF_KEYS:
    setattr(ClockReading, _name, _refusing(ClockReading.refuse))


# -- stand-ins


ALWAYS = 1_000  # no call has so many arguments
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")  # noqa: PTH118, PTH120, PTH100
_LARGEST: Final = (1 << 63) - 1  # seed that an operation takes
_SEEDS: Final = 1 << 64  # a negative seed stands for the one so much larger


def _checked(original: Callable[..., Any], check: Callable[[Sequence[Any], Any], None]) -> Callable[..., Any]:
    """A function that calls another one after `check` has looked at the arguments, two frames above the call site."""

    @functools.wraps(original)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return original(*args, **kwargs)

    return checked


@functools.lru_cache(maxsize=1024)
def refusing(
    original: Callable[..., Any],
    does: str,
    *,
    hands_on: Callable[[str], bool] | None = None,
    below: int = ALWAYS,
) -> Callable[..., Any]:
    """A function that refuses when the user asks, with fewer arguments than `below`."""

    def check(args: Sequence[Any], kwargs: Any) -> None:
        if len(args) + len(kwargs) < below and users_frame(2, hands_on=hands_on) is not None:
            raise outside_error(f"the step {does}")

    return _checked(original, check)


def not_torch(file: str) -> bool:
    """In the middle of a step no library but torch has a reason to ask the system for itself."""
    return not file.startswith(_TORCH)


def is_torch_state(file: str) -> bool:
    """Torch's own files that only hand on the state of its generators or of its memory; dynamo wraps `manual_seed`."""
    return file.startswith((_TORCH + "random.py", _TORCH + "cuda" + os.sep, _TORCH + "_dynamo" + os.sep))


# -- clocks and identities --------------------------------------------------------------------------------------------


def clock_stand_in(original: Callable[[], Any], name: str) -> Callable[[], Any]:
    """A clock whose time the user may hold, but not look into."""

    @functools.wraps(original)
    def read() -> Any:
        frame = users_frame(1)
        if frame is None:
            return original()
        file, line = frame.f_code.co_filename, frame.f_lineno
        return ClockReading(f"time.{name}()", f"{file}:{line}: {linecache.getline(file, line).strip()}")

    return read


def without_clock(kind: Any, names: Sequence[str]) -> Any:
    """The class without what asks the clock; what it makes are instances of the class itself."""

    class AsTheOriginal(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, item: Any) -> bool:
            return isinstance(item, kind)

        def __subclasscheck__(cls, other: Any) -> bool:
            return issubclass(other, kind)

    def make(_cls: Any, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)

    entries: dict[str, Any] = {"__new__": make, "__slots__": (), "__wrapped__": kind, "__module__": __name__}
    for name in names:
        entries[name] = staticmethod(refusing(getattr(kind, name), f"reads the clock ({name})"))
    return AsTheOriginal(kind.__name__, (kind,), entries)


def identity_stand_in(
    original: Callable[[Any], int], by_address: Callable[[Any], bool]
) -> Callable[[Any], int]:
    """`id` or `hash`: where it is an address, the user may use it as a key, but not compute with it."""

    @functools.wraps(original)
    def read(item: Any) -> int:
        number = original(item)
        return Identity(number) if by_address(item) and direct_user() is not None else number

    return read


def always(_item: Any) -> bool:
    """Every object has an address."""
    return True


def is_hashed_by_address(item: Any) -> bool:
    """Whether the `hash` of an object is its address: by default, and of tensors."""
    kind: Any = type(item)
    return kind.__hash__ in (object.__hash__, torch.Tensor.__hash__)


# -- numpy, frames, random generators ---------------------------------------------------------------------------------


def numpy_stand_in(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function that makes tensors, refusing when the user's line, not that of a library, gives it a numpy array."""

    def check(args: Sequence[Any], kwargs: Any) -> None:
        frame = calling_frame(1) if any(map(is_array, (*args[:1], *kwargs.values()))) else None
        if frame is not None and is_users_frame(frame) and not is_observed(frame):
            raise outside_error(
                "the step makes a tensor of a numpy array",
                "make the tensor outside the step and pass it with the batch",
            )

    return _checked(original, check)


def frames_stand_in(original: Callable[[int], types.FrameType]) -> Callable[..., types.FrameType]:
    """`sys._getframe`, refusing when the user asks, also through `inspect` and `traceback`."""

    @functools.wraps(original)
    def frame_at(depth: int = 0) -> types.FrameType:
        asking = original(1).f_globals.get("__name__")
        if (asking in {"inspect", "traceback"} and users_frame(1) is not None) or direct_user() is not None:
            raise outside_error("the step looks at the calls it is made from")
        return original(depth + 1)

    return frame_at


def seed_stand_in(original: Callable[..., None]) -> Callable[..., None]:
    """`Random.seed`, refusing when the user lets it seed by chance."""

    @functools.wraps(original)
    def seed(self: random.Random, *args: Any, **kwargs: Any) -> None:
        if not any(a is not None for a in (*args, *kwargs.values())) and users_frame(1) is not None:
            raise outside_error("the step seeds a random generator by chance", "make it outside the step")
        original(self, *args, **kwargs)

    return seed


def generator_stand_ins() -> list[tuple[Any, Any]]:
    """Pairs of functions that read or set the state of torch's default generator, and operations of the program for them.

    They take their place among the draws of the step, and `torch.random.fork_rng` is made of them. Where CUDA is in use, seeding
    also concerns its generators, whose draws have an order of their own: then the call changes the generator under the trace,
    which is noticed and refused.
    """
    operations: dict[str, Callable[..., Any]] = {
        "get_rng_state": torch.ops.neaptide.get_rng_state.default,
        "set_rng_state": _set,
    }
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        operations["manual_seed"] = _seed
    return [
        (original, _recorded(original, operation))
        for name, operation in operations.items()
        for original in {getattr(torch, name), getattr(torch.random, name)}
    ]


def _recorded(original: Callable[..., Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        asked = users_frame(1, hands_on=is_torch_state) is not None
        return (operation if asked else original)(*args, **kwargs)

    return stand_in


def _set(new_state: torch.Tensor) -> None:  # by the keyword of torch's own function
    torch.ops.neaptide.set_rng_state.default(new_state)


def _seed(seed: Any) -> torch.Generator:
    if not isinstance(seed, torch.SymInt):
        seed = int(seed)
        seed -= _SEEDS if seed > _LARGEST else 0  # the same seed, as torch takes it
    torch.ops.neaptide.manual_seed.default(torch.empty(0, device="cpu"), seed)
    return torch.default_generator
