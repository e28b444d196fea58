"""Kinds of change between two calls of a step, by name: of one object, or of the whole process."""

from __future__ import annotations

import builtins
import contextlib
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize, prune
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from runtime import changing_case
from runtime.changing_case import Color, Knob, Names, Net, Settings

KINDS = {}
# What only the statements of the tables read.
READ = {
    "builtins": builtins,
    "functional": functional,
    "math": math,
    "np": np,
    "parametrize": parametrize,
    "prune": prune,
    **{one.__name__: one for one in (Color, Knob, Names, Net, Settings)},
}

# Changes of one object, `case`: made on the planned case and on its eager reference.
OF_OBJECTS = """
# what runs: hooks, methods, functions, classes, closures
forward_hook_added: case.model.act.register_forward_hook(doubled)
backward_hook_added:
    case.model.last.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2.0,))
gradient_hook_added: case.model.first.weight.register_hook(lambda gradient: gradient * 2.0)
post_accumulate_hook_added:
    case.model.first.weight.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.mul_(2.0))
forward_set_on_the_model: inner = case.model.forward; case.model.forward = lambda x: inner(x) * 2.0
method_set_on_an_instance: case.model.head = case.model.last
zero_grad_of_the_optimizer_replaced: case.optimizer.zero_grad = lambda set_to_none=True: None
class_of_a_module_replaced: case.model.act.__class__ = nn.ReLU
closure_variable_changed: case.set_count(5.0)
function_replaced: case.function = math.sqrt
# modules, loose tensors, optimizers
attribute_of_a_module_changed: case.model.slope = 3.0
submodule_replaced: case.model.act = nn.ReLU()
dropout_rate_changed: case.model.drop.p = 0.5
parameter_that_was_none: case.model.extra = nn.Parameter(torch.full((2,), 2.0))
parameter_frozen: case.model.first.weight.requires_grad_(False)
parameter_replaced: case.model.first.weight = nn.Parameter(torch.ones(4, 3))
parameters_tied_by_their_bytes: case.model.first.bias.data = case.model.norm.weight.data
parametrization_registered: parametrize.register_parametrization(case.model.last, "weight", Twice())
pruned: prune.l1_unstructured(case.model.first, "weight", amount=4)
state_loaded: case.model.load_state_dict({k: torch.ones_like(v) for k, v in case.model.state_dict().items()})
loose_tensor_replaced: case.offset = torch.ones(2)
loose_tensor_added_to_a_list: case.extra.append(torch.ones(2))
loose_tensor_needs_a_gradient: case.offset.requires_grad_()
learning_rate_changed: case.optimizer.param_groups[0]["lr"] = 0.5
learning_rate_is_a_tensor: case.optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
group_split:
    group = case.optimizer.param_groups[0]
    last = group["params"].pop()
    case.optimizer.add_param_group({"params": [last], "lr": 0.7})
parameters_of_a_group_in_another_order: case.optimizer.param_groups[0]["params"].reverse()
other_optimizer: case.optimizer = torch.optim.Adam(case.model.parameters(), lr=0.4)
optimizer_state_added:
    w = case.model.first.weight
    case.optimizer.param_groups[0]["momentum"] = 0.9
    case.optimizer.state[w]["momentum_buffer"] = torch.ones_like(w)
gradient_there: case.model.first.weight.grad = torch.ones(4, 3)
# values and containers
number_of_another_type: case.number = 2
sign_of_zero: case.number = -0.0
entry_of_a_dict_changed: case.table["a"] = 3.0
chain_map_changed: case.chained.maps[0]["a"] = 4.0
deque_entry_changed: case.queue[0] = 4.0
array_element_changed: case.array[0] = 4.0
bytes_changed: case.bytes[0] = 4
dataclass_field_changed: case.settings.power = 4.0
slot_changed: case.slotted.gain = 4.0
attribute_behind_a_property_changed: case.knob._level = 4.0
"""
# Changes of the whole process: made once, and undone by the `stack`.
OF_ALL = """
global_forward_hook_added:
    hook = nn.modules.module.register_module_forward_hook(on_tanh(lambda m, args, out: out * 2.0))
    stack.callback(hook.remove)
global_backward_hook_added:
    hook = nn.modules.module.register_module_full_backward_hook(on_tanh(lambda m, ins, outs: (ins[0] * 2.0,)))
    stack.callback(hook.remove)
forward_of_the_class_patched:
    inner = Net.forward
    set_for(stack, Net, "forward", lambda self, x: inner(self, x) * 2.0)
call_of_every_module_patched: set_for(stack, nn.Module, "__call__", lambda self, *args: self.forward(*args))
method_of_tensors_patched: set_for(stack, torch.Tensor, "square", lambda self: self.abs())
static_method_patched: set_for(stack, Knob, "halved", staticmethod(lambda value: value * 5.0))
torch_function_patched_where_torch_reads_it:
    inner = functional.linear
    set_for(stack, functional, "linear", lambda *args: inner(*args) * 2.0)
function_of_the_users_module_patched:
    set_for(stack, changing_case, "scaled", lambda value, by=1.0, shift=0.0: value * 3.0)
builtin_hidden_by_a_global:
    changing_case.sum = lambda values: 3.0
    stack.callback(lambda: delattr(changing_case, "sum"))
default_argument_replaced:
    before, changing_case.scaled.__defaults__ = changing_case.scaled.__defaults__, (3.0,)
    stack.callback(lambda: setattr(changing_case.scaled, "__defaults__", before))
class_attribute_changed: set_for(stack, Knob, "strength", 3.0)
global_changed: set_for(stack, changing_case, "FACTOR", 3.0)
entry_of_a_global_changed:
    changing_case.OFFSETS["bias"] = 2.0
    stack.callback(lambda: changing_case.OFFSETS.update(bias=0))
"""


def kind(change):
    """A change of one object."""
    KINDS[change.__name__] = (change, False)
    return change


def everywhere(change):
    """A change of the whole process or thread, undone by the stack that it is given."""
    KINDS[change.__name__] = (change, True)
    return change


def set_for(stack, owner, name, value):
    before = vars(owner).get(name, KINDS)
    setattr(owner, name, value)
    stack.callback(lambda: delattr(owner, name) if before is KINDS else setattr(owner, name, before))


def doubled(*args):
    return args[-1] * 2.0


def on_tanh(hook):
    """A hook of all modules that leaves all but one alone."""
    return lambda module, *args: hook(module, *args) if type(module) is nn.Tanh else None


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2.0


def told(table, target, register):
    """The changes of a table, each a name and statements that name their target."""
    rows = []
    for line in table.strip().splitlines():
        if line.startswith("    "):
            rows[-1].append(line.strip())
        elif not line.startswith("#"):
            rows.append(line.split(":", 1))
    for name, *statements in rows:
        code = compile("\n".join(filter(None, map(str.strip, statements))), __file__, "exec")

        def change(given, code=code):
            exec(code, {**globals(), **READ, target: given})

        change.__name__ = name
        register(change)


told(OF_OBJECTS, "case", kind)
told(OF_ALL, "stack", everywhere)


@kind
def optimizer_pre_hook_added(case):
    def halve(optimizer, args, kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    case.optimizer.register_step_pre_hook(halve)


@everywhere
def global_optimizer_hook_added(stack):
    def double(optimizer, args, kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad.mul_(2.0)

    stack.callback(register_optimizer_step_pre_hook(double).remove)


@kind
def step_of_the_optimizer_replaced(case):
    inner = type(case.optimizer).step

    def step(closure=None):
        inner(case.optimizer)
        inner(case.optimizer)

    case.optimizer.step = step


@everywhere
def code_of_a_function_replaced(stack):
    before = changing_case.scaled.__code__

    def other(value, by=1.0, *, shift=0.0):
        return value * 3.0

    changing_case.scaled.__code__ = other.__code__
    stack.callback(lambda: setattr(changing_case.scaled, "__code__", before))


# -- modes that a step is called in


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
enters("autocast_around_the_call", lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False))
enters("default_dtype_changed", lambda: default_dtype(torch.float64))
enters("function_mode_around_the_call", HalvesTanh)
enters("dispatch_mode_around_the_call", HalvesTanhOps)
enters(
    "saved_tensors_hooks_around_the_call",
    lambda: torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved * 2.0),
)
enters("attention_kernels_off", lambda: sdpa_kernel(SDPBackend.MATH))
