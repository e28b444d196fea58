"""Changes of modules, loose tensors and optimizers."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from runtime.changes import kind


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2.0


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
