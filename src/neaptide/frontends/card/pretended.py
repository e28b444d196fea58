"""While a step is captured for a card that is not there: PyTorch believes that it has one, and asks no driver.

Tensors of the trace are fake, so nothing runs. What is left to ask of a driver is answered here: which device is the
current one, whether one is there, which streams it has. For the last, PyTorch asks the guard that its CUDA library
registers for the device; without a card (or in a wheel without CUDA) that of `meta` tensors, which have no streams, answers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from neaptide.cost.presets import compute_capability, get_device
from neaptide.errors import CaptureError, UnsupportedTorch
from neaptide.frontends._torch_private import resolve
from neaptide.frontends.card import _torch_private as private
from neaptide.frontends.kernels.true_results import no_trials_on
from neaptide.frontends.objects.places import Replacement, all_replaced
from neaptide.frontends.recording.line_notes import calling_line

_FAKES = "torch._subclasses.fake_tensor"
_WITH_BF16 = (8, 0)  # older cards compute in other formats
_REAL_KERNEL = "run_fallback_kernel"  # runs an operation without a fake kernel on made-up tensors

_AVOIDS_CARD = "avoid_device_init"  # asked of fake tensors: whether `torch.tensor` makes nothing on the card


@dataclass(frozen=True, slots=True)
class Card:
    """A card for which a step is captured: its name and its compute capability."""

    name: str
    capability: tuple[int, int]

    @property
    def device(self) -> torch.device:
        """What its tensors say that they are on."""
        return torch.device("cuda", 0)


def card_named(device: str | None) -> Card | None:
    """The card of a preset; None where no device is named, or it is no card."""
    if device is None:
        return None
    preset = get_device(device)
    return Card(preset.name, compute_capability(preset)) if preset.kind == "cuda" else None


_current: ContextVar[Card | None] = ContextVar("card", default=None)


def current_card() -> Card | None:
    """The card that is pretended to be there; None where none is."""
    return _current.get()


def device_of_copy(tensor: torch.Tensor) -> torch.device:
    """Where the fake copy of a tensor of the step lies: on the card that is pretended; what has no bytes else on the CPU."""
    card, device = current_card(), tensor.device
    if device.type in {"cpu", "meta"}:
        return torch.device("cpu") if card is None else card.device
    return device


@contextlib.contextmanager
def pretended(card: Card | None) -> Iterator[None]:
    """While open, a card is there, and fake tensors can be on it; with None nothing changes."""
    if card is None or current_card() is not None:
        yield
        return
    token = _current.set(card)
    try:
        with _guard_without_driver(), no_trials_on("cuda"), all_replaced(_answers(card)):
            yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def built_for(card: Card | None) -> Iterator[None]:
    """While open, a program is built as if the card were there; what it puts there stays on the CPU."""
    if card is None:
        yield
        return
    with pretended(card), CardIs(torch.device("cpu")):
        yield


class CardIs(TorchFunctionMode):
    """What is asked for on a card is asked for on another device.

    In a trace that is the card by its number: the guard that stands in for CUDA's does not know the current one.
    """

    only_observes = True

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.cuda:
            return args[0].to(self._device)
        kwargs = {name: self._placed(item) for name, item in (kwargs or {}).items()}
        return func(*map(self._placed, args), **kwargs)

    def _placed(self, item: Any) -> Any:
        if isinstance(item, torch.device):
            return self._device if item.type == "cuda" else item
        return self._device if isinstance(item, str) and item.partition(":")[0] == "cuda" else item


def _answers(card: Card) -> Iterator[Replacement]:
    """What PyTorch says of its devices."""
    yield torch.cuda, private.CUDA_START, _always(None)
    fakes = importlib.import_module(_FAKES)
    yield fakes, "init_gpu_context", _always(None)
    resolve(_FAKES, _REAL_KERNEL)
    yield fakes, _REAL_KERNEL, _no_real_kernel
    # What the step writes down becomes a tensor of the host, and a copy of it goes to the card.
    yield resolve(_FAKES, "FakeTensorMode"), _AVOIDS_CARD, lambda _original: property(lambda _mode: True)
    yield importlib.import_module("torch.cuda.amp.common"), "amp_definitely_not_available", _always(False)
    # Weights are never put into one block: their fake copies have no bytes, and the card would have them there.
    yield torch.backends.cudnn, "is_acceptable", _always(False)
    yield torch.amp.GradScaler, private.SCALER_START, _scale_on_host
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": card.capability,
        "get_device_name": card.name,
        "is_current_stream_capturing": False,
        "synchronize": None,
    }
    yield torch.cuda, "is_bf16_supported", lambda _original: functools.partial(_has_bf16, card)
    for name, answer in answers.items():
        yield torch.cuda, name, _always(answer)


def _has_bf16(card: Card, including_emulation: bool = True) -> bool:
    return including_emulation or card.capability >= _WITH_BF16


def _no_real_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(mode: Any, function: Any, operands: Any, *rest: Any) -> Any:
        if not any(isinstance(item, torch.Tensor) and item.is_cuda for item in operands):
            return original(mode, function, operands, *rest)
        line = calling_line()
        raise CaptureError(
            f"{function} cannot be captured for a card that is not there",
            where=None if line is None else line.location,
            why="it has no fake kernel, and its real one would have to run on the card",
            next_step="give it one with torch.library.register_fake, or leave --device out",
        )

    return run


def _scale_on_host(original: Callable[..., None]) -> Callable[..., None]:
    return lambda scaler, _device: original(scaler, torch.device("cpu"))


def _always(answer: Any) -> Callable[[Any], Callable[..., Any]]:
    def make(_original: Any) -> Callable[..., Any]:
        return lambda *_args, **_kwargs: answer

    return make


@contextlib.contextmanager
def _guard_without_driver() -> Iterator[None]:
    """Let the guard of `meta` tensors, which does nothing, answer for CUDA."""
    guards = private.device_guards()
    if guards is None:
        raise UnsupportedTorch(
            f"torch {torch.__version__} on {sys.platform} cannot pretend a card",
            why="its table of device guards is not found",
            next_step="use Linux or macOS, or leave --device out: the step is then planned for this machine",
        )
    before, guards[private.CUDA_GUARD] = guards[private.CUDA_GUARD], guards[private.META_GUARD]
    try:
        yield
    finally:
        guards[private.CUDA_GUARD] = before
