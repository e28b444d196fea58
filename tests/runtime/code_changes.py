"""Changes of what runs: hooks, methods, functions, classes, globals, closures."""

from __future__ import annotations

import builtins
import math

import torch
from torch import nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_pre_hook

from runtime import changing_case
from runtime.changes import everywhere, kind, set_for
from runtime.changing_case import Knob, Names, Net


def doubled(*args):
    return args[-1] * 2.0


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
