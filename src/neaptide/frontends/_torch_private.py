"""Every private PyTorch name that the frontends use, resolved in one place.

Each lookup fails with `UnsupportedTorch`, naming the torch version and the missing symbol.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.cost.random_states import cards_in_use
from neaptide.errors import UnsupportedTorch


@functools.cache
def resolve(module: str, name: str) -> Any:
    """A name of a module of torch; `UnsupportedTorch` where it is not there."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTorch(
            f"torch {torch.__version__} has no {module}.{name}",
            why="neaptide needs it to capture a training step",
            next_step="install a torch between 2.11 and 2.15",
        ) from error


FAKE_TENSOR: Any = resolve("torch._subclasses.fake_tensor", "FakeTensor")
# Marks a dispatch mode as the one that traces: all arithmetic on symbolic numbers is reported to it.
TRACING_MODE_KEY: Any = resolve("torch._C", "_TorchDispatchModeKey").PROXY
# What torch raises for fake operands of an operation whose result has a size that only the data knows.
UnknownSizeError: Any = resolve("torch._subclasses.fake_tensor", "DynamicOutputShapeException")
# The number that the next autograd node gets.
next_sequence: Callable[[], int] = resolve("torch.autograd", "_get_sequence_nr")
# Whether a tensor is a wrapper of others (a DTensor, say) and has no bytes of its own.
holds_other_tensors: Callable[[torch.Tensor], bool] = resolve(
    "torch.utils._python_dispatch", "is_traceable_wrapper_subclass"
)
# Operations inside run on real tensors, unseen by a trace that is going on.
no_modes: Callable[[], contextlib.AbstractContextManager[Any]] = resolve(
    "torch.utils._python_dispatch", "_disable_current_modes"
)
# The dispatch modes that are active, innermost last.
dispatch_modes: Callable[[], list[Any]] = resolve(
    "torch.utils._python_dispatch", "_get_current_dispatch_mode_stack"
)

# The question of a check that only raises, by its module and name there; none before torch 2.15, whose checks ask the tensor.
check_questions: tuple[tuple[Any, str], ...] = tuple(
    (module, "_all_true_or_runtime_assert")
    for module in (torch.distributions.distribution,)
    if hasattr(module, "_all_true_or_runtime_assert")
)


def data_dependent_errors() -> tuple[type[Exception], ...]:
    """What tracing raises when Python asks for a number that only the data knows."""
    shapes = (
        "torch.fx.experimental.symbolic_shapes"  # with sympy, which a session without a trace does not need
    )
    return (
        resolve(shapes, "GuardOnDataDependentSymNode"),
        resolve("torch._subclasses.fake_tensor", "DataDependentOutputException"),
        UnknownSizeError,
    )


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is fake: it has a shape and a storage identity, but no bytes."""
    return isinstance(tensor, FAKE_TENSOR)


def new_fake_mode() -> Any:
    """A fake mode with a shape environment in which `.item()` gives a symbolic number.

    Real tensors are refused (`allow_non_fake_inputs=False`): one that was missed must not become a constant.
    """
    mode = resolve("torch._subclasses.fake_tensor", "FakeTensorMode")
    shape_env = resolve("torch.fx.experimental.symbolic_shapes", "ShapeEnv")
    return mode(shape_env=shape_env(allow_scalar_outputs=True), allow_non_fake_inputs=False)


def new_fake(
    mode: Any, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A fake tensor on bytes of its own, made without a dispatch."""
    with resolve("torch._subclasses.fake_tensor", "in_kernel_invocation_manager")(mode):
        empty = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    made: torch.Tensor = FAKE_TENSOR(mode, empty, device)
    return made


def literal_bytes(tensor: torch.Tensor) -> bytes:
    """The contents of a real tensor, also while a step is traced."""
    with no_modes():
        content: bytes = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
        return content


def storage_key(storage: torch.UntypedStorage) -> int:
    """Identity of a storage while it is live."""
    return int(storage._cdata)


def forget_elements(tensor: torch.Tensor) -> None:
    """Let the elements of a fake tensor, which are known where the code writes them down, be known no longer."""
    if is_fake(tensor) and tensor.constant is not None:  # type: ignore[attr-defined]
        converter = tensor.fake_mode.fake_tensor_converter  # type: ignore[attr-defined]
        converter.invalidate_constant_aliases(tensor.constant)  # type: ignore[attr-defined]


def sequence_of(node: Any) -> int:
    """The number of an autograd node."""
    return int(node._sequence_nr())


def autograd_nodes(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """The autograd nodes that made some tensors, and all after them."""
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        following = {further for further, _ in node.next_functions if further is not None} - seen
        seen |= following
        waiting.extend(following)


def new_symbolic_float(operands: tuple[Any, ...]) -> torch.SymFloat:
    """Another number that only the data knows, in the shape environment of the symbolic ones among `operands`."""
    symbols = (torch.SymFloat, torch.SymInt)
    environment = next(operand.node.shape_env for operand in operands if isinstance(operand, symbols))
    number: torch.SymFloat = environment.create_unbacked_symfloat()
    return number


def known_number(symbol: Any) -> float | None:
    """The number that a symbolic number was found to be; None for one that only the data knows."""
    node = symbol.node
    if node.constant is not None:
        return node.constant  # type: ignore[no-any-return]
    if not node.expr.is_number:
        return None
    return node.pytype(node.expr)  # type: ignore[no-any-return]


def would_be_decomposed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether autograd, had it been asked, would have run an operation as several others."""
    if function.overloadpacket in _ASKED_OF_FAKES or not function._can_decompose():
        return False
    asked = resolve("torch.utils._python_dispatch", "autograd_would_have_decomposed")
    return bool(asked(function, pytree.tree_leaves((args, kwargs))))


_ASKED_OF_FAKES = (torch.ops.aten.size, torch.ops.aten.stride, torch.ops.aten.storage_offset)


@functools.cache
def makers_of_tensors() -> tuple[Callable[..., torch.Tensor], ...]:
    """Functions that take a numpy array; torch's own tables of functions, made when first asked for, hold them now."""
    resolve("torch.utils._device", "_device_constructors")()
    resolve("torch.overrides", "get_ignored_functions")()
    return torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy


def keeps_casts() -> bool:
    """Whether a region of autocast is open, in which casts of weights are kept until it ends."""
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return depth > 1 and torch.is_autocast_cache_enabled()


@contextlib.contextmanager
def no_structured_log() -> Iterator[None]:
    """Write no structured log: it reads the whole stack for each number of a trace, and fails on undecodable paths."""
    log = resolve("torch._logging._internal", "trace_log")
    handlers, log.handlers = log.handlers, []
    try:
        yield
    finally:
        log.handlers = handlers


@contextlib.contextmanager
def inlined_compile() -> Iterator[None]:
    """Let functions compiled by Dynamo be traced through: they run as if they were not compiled."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def parameter_hooks(tensor: torch.Tensor) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
    """Gradient hooks and post-accumulate hooks registered on a leaf."""
    gradient = getattr(tensor, "_backward_hooks", None) or {}
    accumulated = getattr(tensor, "_post_accumulate_grad_hooks", None) or {}
    return list(gradient.values()), list(accumulated.values())


MODULE_INTERNALS = frozenset(
    (
        *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
        *("_is_full_backward_hook", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks"),
        *("_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    )
)
# Attributes that `nn.Module.__call__` reads of each module.
READ_BY_CALLS = frozenset({"training", "_compiled_call_impl"})
# Attributes that torch's own modules write by themselves: caches of the weights of RNNs.
REFRESHED = frozenset({"_flat_weights", "_flat_weight_refs", "_flat_weights_names"})


def children(module: torch.nn.Module) -> dict[str, Any]:
    """The dict in which a module keeps its submodules."""
    return module._modules


def module_tensors(module: torch.nn.Module) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
    """The dicts in which a module keeps its own parameters and buffers, with their roles."""
    return ("parameter", module._parameters), ("buffer", module._buffers)


# What `nn.Module.__call__` looks through: hooks, and which of them want more arguments.
_HOOK_DICTS = (
    *("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"),
    *("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs"),
    *("_forward_hooks_always_called",),
)
_module_hook_dicts = operator.itemgetter(*_HOOK_DICTS)
_module_entry_dicts = operator.itemgetter("_parameters", "_buffers", "_modules")
_OPTIMIZER_HOOKS = {
    "register_step_pre_hook": "_optimizer_step_pre_hooks",
    "register_step_post_hook": "_optimizer_step_post_hooks",
}


def hook_dicts(modules: Iterable[Any], optimizers: Iterable[Any]) -> list[dict[int, Any]]:
    """The dicts of all hooks; of modules their attribute dicts are taken. A tenth of a microsecond for each."""
    of_modules = chain.from_iterable(map(_module_hook_dicts, modules))
    of_optimizers = chain.from_iterable(optimizer_hooks(optimizer).values() for optimizer in optimizers)
    return [*of_modules, *of_optimizers, *GLOBAL_HOOKS.values()]


def entry_dicts(modules: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Dicts of the parameters, buffers and submodules of each of some modules, which are given as attribute dicts."""
    return chain.from_iterable(map(_module_entry_dicts, modules))


def module_hooks(module: torch.nn.Module) -> dict[str, dict[int, Callable[..., Any]]]:
    """Forward and backward hooks of a module, by the method that registers them."""
    return {
        "register_forward_pre_hook": module._forward_pre_hooks,
        "register_forward_hook": module._forward_hooks,
        "register_full_backward_pre_hook": module._backward_pre_hooks,
        "register_full_backward_hook": module._backward_hooks,
    }


def optimizer_hooks(optimizer: torch.optim.Optimizer) -> dict[str, dict[int, Callable[..., Any]]]:
    """Hooks before and after `step` of an optimizer, by the method that registers them; none where it can have none."""
    attributes = vars(optimizer)
    return {method: attributes[name] for method, name in _OPTIMIZER_HOOKS.items() if name in attributes}


def only_counts_steps(item: Any, attribute: str, content: Any) -> bool:
    """Whether an attribute of an optimizer tells learning-rate schedulers that `step` was called, and nothing else."""
    if attribute == "step":
        code = getattr(content, "__code__", None)
        return code is not None and code.co_filename == torch.optim.lr_scheduler.__file__
    return attribute == "_opt_called" and isinstance(item, torch.optim.Optimizer)


def unpatched(member: Any) -> Any:
    """A member of a class without what Dynamo puts around it, which changes no result.

    Dynamo does so in the whole process when it compiles for the first time: it counts modules that are made, and skips methods
    of optimizers.
    """
    while isinstance(member, FunctionType):
        if getattr(member, "_torchdynamo_disable", False):
            inner = [vars(member).get("_torchdynamo_orig_callable")]
        elif member.__globals__.get("__name__") == "torch._dynamo.mutation_guard":
            inner = [cell.cell_contents for cell in member.__closure__ or ()]
        else:
            break
        if len(inner) != 1 or not callable(inner[0]):
            break
        member = inner[0]
    return member


def active_modes() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Modes that see torch's functions, and modes that see its operations, outermost first."""
    return tuple(_function_modes()), tuple(dispatch_modes())


def device_of_mode(mode: Any) -> torch.device | None:
    """The device of a mode that only sets the default device; None for other modes."""
    context = resolve("torch.utils._device", "DeviceContext")
    return mode.device if type(mode) is context else None


def is_inside_transform() -> bool:
    """Whether `torch.func` (vmap, grad, ...) is transforming what runs."""
    return _transform() is not None


def saved_tensor_hooks() -> tuple[Callable[..., Any], ...] | None:
    """The innermost pack and unpack functions for tensors that autograd saves."""
    hooks: tuple[Callable[..., Any], ...] | None = _saved_hooks(False)
    return hooks


_MODULE, _OPTIMIZER = "torch.nn.modules.module", "torch.optim.optimizer"
# Hooks that all modules or all optimizers run, by the function that registers them, in dicts that torch never replaces.
GLOBAL_HOOKS: dict[str, dict[int, Callable[..., Any]]] = {
    "register_module_forward_pre_hook": resolve(_MODULE, "_global_forward_pre_hooks"),
    "register_module_forward_hook": resolve(_MODULE, "_global_forward_hooks"),
    "register_module_full_backward_pre_hook": resolve(_MODULE, "_global_backward_pre_hooks"),
    "register_module_full_backward_hook": resolve(_MODULE, "_global_backward_hooks"),
    "register_optimizer_step_pre_hook": resolve(_OPTIMIZER, "_global_optimizer_pre_hooks"),
    "register_optimizer_step_post_hook": resolve(_OPTIMIZER, "_global_optimizer_post_hooks"),
}
_function_modes = resolve("torch.overrides", "_get_current_function_mode_stack")
_transform = resolve("torch._C._functorch", "peek_interpreter_stack")
_saved_hooks = resolve("torch._C._autograd", "_top_saved_tensors_default_hooks")


# Attributes that torch gives each optimizer.
OPTIMIZER_INTERNALS = frozenset(
    (
        *("param_groups", "state", "step", "_optimizer_step_pre_hooks"),
        *("_optimizer_step_post_hooks", "_opt_called", "_optimizer_state_dict_pre_hooks"),
        *("_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks"),
        *("_optimizer_load_state_dict_post_hooks", "_warned_capturable_if_run_uncaptured"),
        *("_zero_grad_profile_name", "_need_device_dtype_check_for_fused"),
    )
)


def is_plain_scaler(scaler: torch.amp.GradScaler) -> bool:
    """Whether a scaler steps and updates as `torch.amp.GradScaler` does."""
    methods = ("scale", "unscale_", "_unscale_grads_", "_maybe_opt_step", "step", "update")
    return all(getattr(type(scaler), name) is getattr(torch.amp.GradScaler, name) for name in methods)


def start_scaler(scaler: torch.amp.GradScaler) -> None:
    """Make the scale and the growth tracker of a gradient scaler, as its first use does."""
    if scaler._scale is None:
        scaler._lazy_init_scale_growth_tracker(torch.device(scaler._device))


SCALER_NOTES = "_per_optimizer_states"  # for each optimizer, between `unscale_` and `update`
SCALER_TENSORS = ("_scale", "_growth_tracker")
SCALER_SETTINGS = ("_growth_factor", "_backoff_factor", "_growth_interval", "_enabled")


def chooses_foreach(
    parameters: list[torch.Tensor], *, differentiable: bool, is_on_absent_card: bool = False
) -> bool:
    """Whether an optimizer that is not told updates all parameters at once, here or on a card that is not there."""
    if is_on_absent_card:
        supported = resolve("torch.optim.optimizer", "_foreach_supported_types")
        return not differentiable and all(type(parameter) in supported for parameter in parameters)
    chosen = resolve("torch.optim.optimizer", "_default_to_fused_or_foreach")(parameters, differentiable)
    return bool(chosen[1])


def updates_one_by_one(device: torch.device) -> bool:
    """Whether `_foreach_*` and `_fused_*` run one kernel for each tensor on a device, with the bits of plain operations."""
    return device.type == "cpu"


def is_about_fakes(error: Exception) -> bool:
    """Whether an error says that a real tensor met the fake tensors of a trace."""
    unsupported = resolve("torch._subclasses.fake_tensor", "UnsupportedFakeTensorException")
    text = str(error)
    return isinstance(error, unsupported) or "non-Fake Tensor" in text or "FakeTensor" in text


# -- kernels: which there are, which are chosen, and how one is run while a step is traced


@functools.cache
def has_python_kernel(operation: Any) -> bool:
    """Whether the fake kernel of an operation may be one of PyTorch's in Python, and not the real one's own."""
    tables = ("decomposition_table", "meta_table")
    return any(operation in resolve("torch._decomp", table) for table in tables)


@contextlib.contextmanager
def bare_kernels(*, draws: bool) -> Iterator[None]:
    """Operations inside run on real tensors, unseen by modes and autocast, and random numbers go on as they were.

    `draws` says whether they may draw some, of any card that is in use, too.
    """
    with (
        no_modes(),
        resolve("torch._C", "DisableTorchFunction")(),
        resolve("torch._C", "_DisableAutocast")(),
        torch.no_grad(),
        torch.random.fork_rng(devices=cards_in_use(), enabled=draws),
    ):
        yield


def kernel_flags() -> tuple[bool, ...]:
    """What decides, for the whole thread, which kernel of an operation runs."""
    return (_is_mkldnn_on(), torch.are_deterministic_algorithms_enabled())


def kernel_choices() -> dict[str, Callable[[], Any]]:
    """Flags by which PyTorch chooses among operations, not inside of one, by their names."""
    attention = torch.backends.cuda
    return {
        "backends.mkldnn": resolve("torch._C", "_get_mkldnn_enabled"),
        "backends.cudnn": resolve("torch._C", "_get_cudnn_enabled"),
        "backends.mha fast path": torch.backends.mha.get_fastpath_enabled,
        "flash attention": attention.flash_sdp_enabled,
        "memory-efficient attention": attention.mem_efficient_sdp_enabled,
        "attention in plain operations": attention.math_sdp_enabled,
        "cudnn attention": attention.cudnn_sdp_enabled,
    }


_is_mkldnn_on = resolve("torch._C", "_get_mkldnn_enabled")
