"""Whatever changes between two calls, a planned step gives the numbers of eager or says that it does not fit."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import math
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize, prune
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.errors import CaptureError, StepMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step
from neaptide.runtime.planned_step import PlannedStep
from runtime import changing_case
from runtime.changing_case import Case, Color, Knob, Names, Net, Settings
from step_checks import as_variant


def batch():
    torch.manual_seed(7)
    return torch.randn(5, 3)


KINDS = {}


def kind(change):
    """A change of one object; made on the planned case and on its eager twin."""
    KINDS[change.__name__] = (change, False)
    return change


def everywhere(change):
    """A change of the whole process or thread: made once, and undone by the stack that it is given."""
    KINDS[change.__name__] = (change, True)
    return change


def set_for(stack, owner, name, value):
    before = owner.__dict__.get(name, KINDS)
    setattr(owner, name, value)
    stack.callback(lambda: delattr(owner, name) if before is KINDS else setattr(owner, name, before))


def doubled(*args):
    return args[-1] * 2.0


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2.0


# -- hooks


@kind
def forward_hook_added(case):
    case.model.act.register_forward_hook(doubled)


@kind
def forward_pre_hook_added(case):
    case.model.last.register_forward_pre_hook(lambda module, args: (args[0] * 2.0,))


@kind
def hook_of_the_root_added(case):
    case.model.register_forward_hook(doubled)


@kind
def backward_hook_added(case):
    case.model.last.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2.0,))


@kind
def backward_pre_hook_added(case):
    case.model.last.register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 2.0,))


@kind
def gradient_hook_added(case):
    case.model.first.weight.register_hook(lambda gradient: gradient * 2.0)


@kind
def post_accumulate_hook_added(case):
    case.model.first.weight.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.mul_(2.0))


@kind
def optimizer_pre_hook_added(case):
    def halve(optimizer, args, kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    case.optimizer.register_step_pre_hook(halve)


@kind
def optimizer_post_hook_added(case):
    def shrink(optimizer, args, kwargs):
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].mul_(0.5)

    case.optimizer.register_step_post_hook(shrink)


@everywhere
def global_forward_hook_added(stack):
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, args, out: out * 2.0 if type(module) is nn.Tanh else None
    )
    stack.callback(hook.remove)


@everywhere
def global_forward_pre_hook_added(stack):
    hook = nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: (args[0] * 2.0,) if type(module) is nn.Tanh else None
    )
    stack.callback(hook.remove)


@everywhere
def global_backward_hook_added(stack):
    hook = nn.modules.module.register_module_full_backward_hook(
        lambda module, inputs, outputs: (inputs[0] * 2.0,) if type(module) is nn.Tanh else None
    )
    stack.callback(hook.remove)


@everywhere
def global_optimizer_hook_added(stack):
    def double(optimizer, args, kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad.mul_(2.0)

    stack.callback(register_optimizer_step_pre_hook(double).remove)


# -- methods and functions


@kind
def forward_set_on_the_model(case):
    inner = case.model.forward
    case.model.forward = lambda x: inner(x) * 2.0


@kind
def forward_set_on_a_layer(case):
    layer = case.model.first
    layer.forward = lambda x: functional.linear(x, layer.weight * 2.0, layer.bias)


@kind
def method_set_on_an_instance(case):
    case.model.head = case.model.last


@kind
def method_set_on_a_plain_object(case):
    case.knob.turned = lambda value: value * 3.0


@kind
def step_of_the_optimizer_replaced(case):
    inner = type(case.optimizer).step

    def step(closure=None):
        inner(case.optimizer)
        inner(case.optimizer)

    case.optimizer.step = step


@kind
def zero_grad_of_the_optimizer_replaced(case):
    case.optimizer.zero_grad = lambda set_to_none=True: None


@everywhere
def forward_of_the_class_patched(stack):
    inner = Net.forward
    set_for(stack, Net, "forward", lambda self, x: inner(self, x) * 2.0)


@everywhere
def method_of_the_class_patched(stack):
    set_for(stack, Net, "head", lambda self, hidden: self.last(hidden))


@everywhere
def call_of_the_class_patched(stack):
    set_for(stack, Net, "__call__", lambda self, x: self.forward(x) * 2.0)


@everywhere
def forward_of_a_library_class_patched(stack):
    set_for(stack, nn.Tanh, "forward", lambda self, x: torch.relu(x))


@everywhere
def call_of_every_module_patched(stack):
    set_for(stack, nn.Module, "__call__", lambda self, *args: self.forward(*args))


@everywhere
def method_of_tensors_patched(stack):
    set_for(stack, torch.Tensor, "square", lambda self: self.abs())


@everywhere
def class_method_patched(stack):
    set_for(stack, Knob, "doubled", classmethod(lambda cls, value: value * 5.0))


@everywhere
def static_method_patched(stack):
    set_for(stack, Knob, "halved", staticmethod(lambda value: value * 5.0))


@everywhere
def property_patched(stack):
    set_for(stack, Knob, "level", property(lambda self: 5.0))


@everywhere
def torch_function_patched_where_users_read_it(stack):
    set_for(stack, functional, "softplus", torch.relu)


@everywhere
def torch_function_patched_where_torch_reads_it(stack):
    inner = functional.linear
    set_for(stack, functional, "linear", lambda *args: inner(*args) * 2.0)


@everywhere
def function_of_the_users_module_patched(stack):
    set_for(stack, changing_case, "scaled", lambda value, by=1.0, shift=0.0: value * 3.0)


@everywhere
def builtin_hidden_by_a_global(stack):
    changing_case.sum = lambda values: 3.0
    stack.callback(lambda: delattr(changing_case, "sum"))


@everywhere
def builtin_patched(stack):
    inner = builtins.sum
    set_for(stack, builtins, "sum", lambda *values: inner(*values) * 2.0)


@everywhere
def code_of_a_function_replaced(stack):
    before = changing_case.scaled.__code__

    def other(value, by=1.0, *, shift=0.0):
        return value * 3.0

    changing_case.scaled.__code__ = other.__code__
    stack.callback(lambda: setattr(changing_case.scaled, "__code__", before))


@everywhere
def default_argument_replaced(stack):
    before = changing_case.scaled.__defaults__
    changing_case.scaled.__defaults__ = (3.0,)
    stack.callback(lambda: setattr(changing_case.scaled, "__defaults__", before))


@everywhere
def keyword_default_changed(stack):
    changing_case.scaled.__kwdefaults__["shift"] = 2.0
    stack.callback(lambda: changing_case.scaled.__kwdefaults__.update(shift=0.0))


@everywhere
def attribute_of_a_function_changed(stack):
    set_for(stack, changing_case.counted, "weight", 3.0)


# -- classes, globals, closures


@everywhere
def class_attribute_changed(stack):
    set_for(stack, Knob, "strength", 3.0)


@everywhere
def class_attribute_of_a_module_changed(stack):
    set_for(stack, Net, "gain", 3.0)


@everywhere
def attribute_of_a_namespace_class_changed(stack):
    set_for(stack, Names, "alpha", 3.0)


@kind
def class_attribute_hidden_by_an_instance(case):
    case.knob.strength = 4.0


@kind
def class_of_an_object_replaced(case):
    case.knob.__class__ = type("Louder", (Knob,), {"turned": lambda self, value: value * 9.0})


@kind
def class_of_a_module_replaced(case):
    case.model.act.__class__ = nn.ReLU


@everywhere
def global_changed(stack):
    set_for(stack, changing_case, "FACTOR", 3.0)


@everywhere
def entry_of_a_global_changed(stack):
    changing_case.OFFSETS["bias"] = 2.0
    stack.callback(lambda: changing_case.OFFSETS.update(bias=0))


@kind
def closure_variable_changed(case):
    case.set_count(5.0)


@kind
def partial_changed(case):
    case.bound.keywords["by"] = 4.0


@kind
def function_replaced(case):
    case.function = math.sqrt


# -- values and containers


@kind
def number_changed(case):
    case.number = 3.0


@kind
def number_of_another_type(case):
    case.number = 2


@kind
def sign_of_zero(case):
    case.number = -0.0


@kind
def entry_of_a_dict_changed(case):
    case.table["a"] = 3.0


@kind
def entry_of_a_dict_added(case):
    case.table["c"] = 3.0


@kind
def entry_of_a_dict_renamed(case):
    case.table["c"] = case.table.pop("a")


@kind
def order_of_a_dict_changed(case):
    case.ordered.move_to_end("a")


@kind
def default_dict_changed(case):
    case.default["a"] = 4.0


@kind
def chain_map_changed(case):
    case.chained.maps[0]["a"] = 4.0


@kind
def chain_map_extended(case):
    case.chained.maps.insert(0, {"a": 4.0})


@kind
def user_dict_changed(case):
    case.wrapped["a"] = 4.0


@kind
def user_list_changed(case):
    case.listed[0] = 4.0


@kind
def deque_entry_changed(case):
    case.queue[0] = 4.0


@kind
def deque_extended(case):
    case.queue.append(4.0)


@kind
def deque_rotated(case):
    case.queue.rotate()


@kind
def set_extended(case):
    case.set.add(4.0)


@kind
def frozenset_replaced(case):
    case.frozen = frozenset({4.0})


@kind
def array_element_changed(case):
    case.array[0] = 4.0


@kind
def array_replaced(case):
    case.array = np.array([4.0, 2.0])


@kind
def packed_array_changed(case):
    case.packed[0] = 4.0


@kind
def bytes_changed(case):
    case.bytes[0] = 4


@kind
def mapping_behind_a_proxy_changed(case):
    case.behind["a"] = 4.0


@kind
def dataclass_field_changed(case):
    case.settings.power = 4.0


@kind
def list_in_a_dataclass_changed(case):
    case.settings.parts[1] = 4.0


@kind
def dataclass_replaced(case):
    case.settings = Settings(power=4.0)


@kind
def enumeration_member_changed(case):
    case.settings.color = Color.BLUE


@everywhere
def value_of_an_enumeration_member_changed(stack):
    Color.RED._value_ = 4.0
    stack.callback(lambda: setattr(Color.RED, "_value_", 1))


@kind
def slot_changed(case):
    case.slotted.gain = 4.0


@kind
def attribute_behind_a_property_changed(case):
    case.knob._level = 4.0


@kind
def namespace_changed(case):
    case.space.depth = 4.0


@kind
def deeply_nested_number_changed(case):
    case.nested[0]["deep"][0] = 4.0


@kind
def tuple_replaced(case):
    case.nested = (case.nested[0], 4.0)


# -- modules


@kind
def attribute_of_a_module_changed(case):
    case.model.slope = 3.0


@kind
def submodule_replaced(case):
    case.model.act = nn.ReLU()


@kind
def submodule_added(case):
    case.model.chain.append(nn.ReLU())


@kind
def submodule_removed(case):
    del case.model.chain[0]


@kind
def submodules_in_another_order(case):
    case.model.chain._modules.move_to_end("0") if hasattr(
        case.model.chain._modules, "move_to_end"
    ) else case.model.chain._modules.update({"0": case.model.chain._modules.pop("0")})


@kind
def one_submodule_in_evaluation(case):
    case.model.norm.eval()


@kind
def dropout_rate_changed(case):
    case.model.drop.p = 0.5


@kind
def parameter_that_was_none(case):
    case.model.extra = nn.Parameter(torch.full((2,), 2.0))


@kind
def parameter_frozen(case):
    case.model.first.weight.requires_grad_(False)


@kind
def parameter_replaced(case):
    case.model.first.weight = nn.Parameter(torch.ones(4, 3))


@kind
def parameters_tied_by_their_bytes(case):
    case.model.first.bias.data = case.model.norm.weight.data


@kind
def parameter_of_another_type(case):
    case.model.first.weight.data = case.model.first.weight.data.double().float().t().contiguous().t()


@kind
def buffer_replaced(case):
    case.model.shift = torch.ones(2)


@kind
def parametrization_registered(case):
    parametrize.register_parametrization(case.model.last, "weight", Twice())


@kind
def pruned(case):
    prune.l1_unstructured(case.model.first, "weight", amount=4)


@kind
def weight_norm_registered(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(case.model.first)


@kind
def state_loaded(case):
    case.model.load_state_dict({k: torch.ones_like(v) for k, v in case.model.state_dict().items()})


# -- loose tensors


@kind
def loose_tensor_replaced(case):
    case.offset = torch.ones(2)


@kind
def loose_tensor_of_another_shape(case):
    case.offset = torch.ones(5, 2)


@kind
def loose_tensor_gone(case):
    case.offset = 2.0


@kind
def loose_tensor_added_to_a_list(case):
    case.extra.append(torch.ones(2))


@kind
def tensor_of_a_tuple_replaced(case):
    case.pair = (torch.ones(2), torch.ones(2))


@kind
def tuple_of_tensors_extended(case):
    case.pair = (*case.pair, torch.ones(2))


@kind
def loose_tensor_needs_a_gradient(case):
    case.offset.requires_grad_()


# -- optimizers


@kind
def learning_rate_changed(case):
    case.optimizer.param_groups[0]["lr"] = 0.5


@kind
def learning_rate_is_a_tensor(case):
    case.optimizer.param_groups[0]["lr"] = torch.tensor(0.5)


@kind
def weight_decay_changed(case):
    case.optimizer.param_groups[0]["weight_decay"] = 0.5


@kind
def maximize_changed(case):
    case.optimizer.param_groups[0]["maximize"] = True


@kind
def momentum_changed(case):
    case.optimizer.param_groups[0]["momentum"] = 0.9


@kind
def group_split(case):
    group = case.optimizer.param_groups[0]
    last = group["params"].pop()
    case.optimizer.add_param_group({"params": [last], "lr": 0.7})


@kind
def parameter_dropped_from_its_group(case):
    del case.optimizer.param_groups[0]["params"][0]


@kind
def parameters_of_a_group_in_another_order(case):
    case.optimizer.param_groups[0]["params"].reverse()


@kind
def optimizer_replaced(case):
    case.optimizer = torch.optim.SGD(case.model.parameters(), lr=0.4)


@kind
def other_optimizer(case):
    case.optimizer = torch.optim.Adam(case.model.parameters(), lr=0.4)


@kind
def optimizer_state_added(case):
    parameter = case.model.first.weight
    case.optimizer.param_groups[0]["momentum"] = 0.9
    case.optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)


@kind
def gradient_there(case):
    case.model.first.weight.grad = torch.ones(4, 3)


@kind
def scheduler_made(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.optim.lr_scheduler.StepLR(case.optimizer, 1, gamma=0.5).step()


# -- modes


def enters(name, make):
    def change(stack):
        stack.enter_context(make())

    change.__name__ = name
    everywhere(change)


class HalvesTanh(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 0.5 if func is torch.tanh else found


class HalvesTanhOps(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 0.5 if func is torch.ops.aten.tanh.default else found


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


enters("no_grad_around_the_call", torch.no_grad)
enters("inference_mode_around_the_call", torch.inference_mode)
enters("autocast_around_the_call", lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False))
enters("default_dtype_changed", lambda: default_dtype(torch.float64))
enters("default_device_changed", lambda: torch.device("meta"))
enters("function_mode_around_the_call", HalvesTanh)
enters("dispatch_mode_around_the_call", HalvesTanhOps)
enters("anomaly_detection_on", lambda: torch.autograd.set_detect_anomaly(True, check_nan=False))
enters(
    "saved_tensors_hooks_around_the_call",
    lambda: torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved * 2.0),
)
enters("attention_kernels_off", lambda: sdpa_kernel(SDPBackend.MATH))


def run(call):
    """What a call gives, or the error that it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:  # noqa: BLE001 - eager may fail in any way
        return error


def agree(case, twin, found, wanted):
    """A call gave what eager gives, or failed where eager fails, or was refused with a reason."""
    if isinstance(wanted, Exception) or isinstance(found, CaptureError):
        return isinstance(found, Exception)
    assert not isinstance(found, Exception), found
    then, now = twin.state(), case.state()
    same = found.dtype == wanted.dtype and torch.equal(found, wanted) and then.keys() == now.keys()
    return same and all(
        torch.equal(now[key], then[key]) if isinstance(then[key], torch.Tensor) else now[key] == then[key]
        for key in then
    )


@functools.cache
def first_capture():
    return capture_step(Case().step, (batch(),))


@pytest.mark.parametrize("name", KINDS)
def test_after_a_change_the_numbers_are_those_of_eager(name):
    change, is_global = KINDS[name]
    case, twin, x = Case(), Case(), batch()

    def again(args, kwargs, changing):
        return as_variant(capture_step(case.step, args, kwargs, changing=changing))

    variant = as_variant(rebind_step(first_capture(), case.step, (x,)))
    runners = {
        policy: PlannedStep(case.step, again, variant, on_mismatch=policy)
        for policy in ("error", "eager", "replan")
    }
    assert all(agree(case, twin, runner(x), twin.step(x)) for runner in runners.values())
    assert all(runner.counts.planned == 1 for runner in runners.values())
    with contextlib.ExitStack() as stack:
        for target in [stack] if is_global else [case, twin]:
            torch.manual_seed(3)
            change(target)
        for policy, runner in runners.items():
            torch.manual_seed(4)
            found = run(lambda runner=runner: runner(x))
            if policy == "error" and isinstance(found, StepMismatch):
                assert found.where
                continue
            torch.manual_seed(4)
            wanted = run(lambda: twin.step(x))
            assert agree(case, twin, found, wanted), (policy, runner.counts.describe(), found, wanted)


def test_there_are_enough_kinds():
    assert len(KINDS) >= 60


def test_nothing_that_does_not_change_is_planned_again():
    case, x = Case(), batch()
    runner = PlannedStep(case.step, None, as_variant(capture_step(case.step, (x,))), on_mismatch="error")
    case.unread = collections.Counter()
    for number in range(3):
        runner(x)
        case.unread[number] += 1
        case.model.note = types.SimpleNamespace(number=number)
    assert runner.counts.planned == 3
