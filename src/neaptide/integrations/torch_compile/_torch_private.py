"""Private PyTorch names of this room, resolved in one place. Checked against torch 2.11 to 2.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from neaptide.frontends._torch_private import no_modes, resolve


def hint_of(number: Any) -> Any:
    """What a symbolic number was at the first call."""
    return number.node.hint


def aot_backend(**passes: Callable[..., Any]) -> Callable[..., Any]:
    """A backend of Dynamo that hands graphs to AOTAutograd, with the compilers and the partition function of `passes`."""
    made: Callable[..., Any] = resolve("torch._dynamo.backends.common", "aot_autograd")(**passes)
    return made


def mutated_input(description: Any) -> Any:
    """The description of the input that an output is written to after the forward pass; None for another output."""
    kind = resolve("torch._functorch._aot_autograd.descriptors", "InputMutationAOTOutput")
    return description.mutated_input if isinstance(description, kind) else None


def saved_description(position: int) -> Any:
    """The description of an output that autograd saves."""
    made = resolve("torch._functorch._aot_autograd.descriptors", "SavedForBackwardsAOTOutput")
    return made(position)


def frame_id() -> str:
    """Which frame Dynamo compiles now; empty outside of it."""
    found = resolve("torch._guards", "CompileContext").current_compile_id()
    return str(getattr(found, "frame_id", ""))


def graph_break(module: fx.GraphModule) -> str | None:
    """The line at which a graph of Dynamo ends because it breaks there, with the reason; None for the last one."""
    found = getattr(module, "compile_subgraph_reason", None)
    if found is None or not found.graph_break or not found.user_stack:
        return None
    at, why = found.user_stack[-1], str(found.reason).strip().splitlines()
    return f"{at.filename}:{at.lineno} ({why[0] if why else 'no reason is told'})"


def is_fake(thing: Any) -> bool:
    """Whether something is a tensor without bytes of its own."""
    return isinstance(thing, resolve("torch._subclasses.fake_tensor", "FakeTensor"))


@contextlib.contextmanager
def traced_again(module: fx.GraphModule) -> Iterator[list[Any]]:
    """Within, a graph of Dynamo that was compiled can be compiled again with the inputs that it gives, which are fake."""
    fakes = [node.meta["example_value"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = next(one.fake_mode for one in fakes if is_fake(one))
    context = resolve("torch._guards", "TracingContext")(mode)
    with resolve("torch._guards", "tracing")(context):
        yield fakes


@contextlib.contextmanager
def as_in_eager() -> Iterator[None]:
    """Within, operations run on real tensors, as they do when nothing is compiled."""
    with no_modes(), resolve("torch._dispatch.python", "no_python_dispatcher")():
        yield
