"""Every private PyTorch name that the frontends use, resolved in one place.

Each lookup fails with `UnsupportedTorch`, naming the torch version and the missing symbol.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.errors import UnsupportedTorch


def _resolve(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTorch(
            f"torch {torch.__version__} has no {module}.{name}",
            why="neaptide needs it to capture a training step",
            next_step="install a torch between 2.11 and 2.15",
        ) from error


def new_fake_mode() -> Any:
    """A fake mode with a shape environment in which `.item()` gives a symbolic number.

    Real tensors are refused (`allow_non_fake_inputs=False`): one that was missed must not become a constant.
    """
    mode = _resolve("torch._subclasses.fake_tensor", "FakeTensorMode")
    shape_env = _resolve("torch.fx.experimental.symbolic_shapes", "ShapeEnv")
    return mode(shape_env=shape_env(allow_scalar_outputs=True), allow_non_fake_inputs=False)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is fake: it has a shape and a storage identity, but no bytes."""
    fake = _resolve("torch._subclasses.fake_tensor", "FakeTensor")
    return isinstance(tensor, fake)


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of a tensor's storage while the tensor is alive."""
    return int(tensor.untyped_storage()._cdata)


def make_fx(function: Callable[..., Any]) -> Callable[..., torch.fx.GraphModule]:
    """Trace at the dispatcher, below autograd, with the user's stack on each node."""
    maker = _resolve("torch.fx.experimental.proxy_tensor", "make_fx")
    traced: Callable[..., torch.fx.GraphModule] = maker(function, record_stack_traces=True)
    return traced


def preserve_node_meta() -> contextlib.AbstractContextManager[Any]:
    """Keep annotations (module path, phase, line) on the traced nodes."""
    context: contextlib.AbstractContextManager[Any] = _resolve("torch.fx.traceback", "preserve_node_meta")()
    return context


def annotate(note: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Attach `note` to every node traced inside the context."""
    context: contextlib.AbstractContextManager[Any] = _resolve("torch.fx.traceback", "annotate")(note)
    return context


def link_backward_to_forward(roots: list[Any]) -> None:
    """Make backward nodes carry the sequence number of their forward op (before `backward` runs)."""
    _resolve("torch._functorch._aot_autograd.logging_utils", "setup_stacktrace_preservation_hooks")(roots)


def data_dependent_errors() -> tuple[type[Exception], ...]:
    """What tracing raises when Python asks for a number that only the data knows."""
    return (
        _resolve("torch.fx.experimental.symbolic_shapes", "GuardOnDataDependentSymNode"),
        _resolve("torch._subclasses.fake_tensor", "DataDependentOutputException"),
        _resolve("torch._subclasses.fake_tensor", "DynamicOutputShapeException"),
    )


class _CheckpointNotes:
    """Numbers the outermost checkpointed calls of a trace, and notes the number on the nodes traced inside."""

    def __init__(self) -> None:
        self._count = 0
        self._depth = 0

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if not self._depth:
                stack.enter_context(annotate({"checkpoint": self._count}))
                self._count += 1
            self._depth += 1
            stack.callback(self._leave)
            yield

    def _leave(self) -> None:
        self._depth -= 1

    def function(self) -> type:
        """Stands in for the reentrant checkpoint function while a step is traced: it just calls."""

        class PlainCheckpoint:
            @staticmethod
            def apply(function: Callable[..., Any], _preserve_rng_state: bool, *args: Any) -> Any:
                with self.noted():
                    return function(*args)

        return PlainCheckpoint

    def generator(self, *_args: Any, **_kwargs: Any) -> Iterator[None]:
        """Stands in for what a checkpoint that is not reentrant does around the call."""
        with self.noted():
            yield


def _nothing() -> None:
    """Stands for a function that this torch does not have."""


@contextlib.contextmanager
def plain_checkpoints() -> Iterator[None]:
    """Run `torch.utils.checkpoint.checkpoint(f, x)` as `f(x)`: neaptide plans recomputation itself.

    Nodes inside of such a call carry its number as the note `checkpoint`. Traced as it stands, a checkpoint freezes the random state of the trace into the graph and dropout is
    silently wrong in the recomputation.
    """
    module = importlib.import_module("torch.utils.checkpoint")
    notes = _CheckpointNotes()
    replacements: dict[str, Any] = dict.fromkeys(_called_checkpoint_generators(module), notes.generator)
    replacements["CheckpointFunction"] = notes.function()
    originals = {name: _resolve("torch.utils.checkpoint", name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _called_checkpoint_generators(module: Any) -> list[str]:
    """What `checkpoint` calls around a non-reentrant region; torch 2.15 calls another function than 2.11 to 2.13.

    A name that `checkpoint` does not call would be replaced to no effect, and dropout would be wrong without a word.
    """
    called: set[str] = set()
    for name in ("checkpoint", "_checkpoint_impl"):
        function = inspect.unwrap(getattr(module, name, _nothing))
        called.update(function.__code__.co_names)
    found = sorted(name for name in called if name.startswith("_checkpoint_without_reentrant_generator"))
    if not found:
        _resolve("torch.utils.checkpoint", "_checkpoint_without_reentrant_generator, called by checkpoint")
    return found


@contextlib.contextmanager
def inlined_compile() -> Iterator[None]:
    """Let functions compiled by Dynamo be traced through instead of refused."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    config = _resolve("torch._dynamo", "config")
    with config.patch(error_on_nested_fx_trace=False):
        yield


def parameter_hooks(tensor: torch.Tensor) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
    """Gradient hooks and post-accumulate hooks registered on a leaf."""
    gradient = getattr(tensor, "_backward_hooks", None) or {}
    accumulated = getattr(tensor, "_post_accumulate_grad_hooks", None) or {}
    return list(gradient.values()), list(accumulated.values())


MODULE_INTERNALS = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}
    | {"_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"}
    | {"_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"}
    | {
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    }
)


def children(module: torch.nn.Module) -> dict[str, Any]:
    """The dict in which a module keeps its submodules."""
    return module._modules


def module_tensors(module: torch.nn.Module) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
    """The dicts in which a module keeps its own parameters and buffers, with their roles."""
    return ("parameter", module._parameters), ("buffer", module._buffers)


def module_hooks(module: torch.nn.Module) -> dict[str, dict[int, Callable[..., Any]]]:
    """Forward and backward hooks of a module, by the method that registers them."""
    return {
        "register_forward_pre_hook": module._forward_pre_hooks,
        "register_forward_hook": module._forward_hooks,
        "register_full_backward_pre_hook": module._backward_pre_hooks,
        "register_full_backward_hook": module._backward_hooks,
    }


def optimizer_hooks(optimizer: torch.optim.Optimizer) -> list[Callable[..., Any]]:
    """Hooks before and after `step` of an optimizer."""
    kinds = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return [hook for kind in kinds for hook in getattr(optimizer, kind).values()]


def register_hook(tensor: torch.Tensor, hook: Callable[..., Any]) -> None:
    """Register a gradient hook."""
    tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def is_about_fakes(error: Exception) -> bool:
    """Whether an error says that a real tensor met the fake tensors of a trace."""
    unsupported = _resolve("torch._subclasses.fake_tensor", "UnsupportedFakeTensorException")
    text = str(error)
    return isinstance(error, unsupported) or "non-Fake Tensor" in text or "FakeTensor" in text


def traced_node(tensor: torch.Tensor) -> tuple[torch.fx.Node | None, Any]:
    """The node of a tensor in the trace that is going on, and what holds that trace's literal tensors."""
    mode = _resolve("torch.fx.experimental.proxy_tensor", "get_proxy_mode")()
    if mode is None:
        return None, None
    found = _resolve("torch.fx.experimental.proxy_tensor", "get_proxy_slot")(tensor, mode.tracer, None)
    return (None if found is None else found.proxy.node), mode.tracer.root


def no_modes() -> contextlib.AbstractContextManager[Any]:
    """Operations inside run on real tensors, unseen by a trace that is going on."""
    modes: contextlib.AbstractContextManager[Any] = _resolve(
        "torch.utils._python_dispatch", "_disable_current_modes"
    )()
    return modes
