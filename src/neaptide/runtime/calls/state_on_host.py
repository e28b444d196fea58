"""The context inside of which a step has state on the host between two calls, and whom it brings that state back for."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils.hooks import RemovableHandle

from neaptide.frontends import _torch_private as private
from neaptide.frontends.state.step_state import StepState


class StateOnHost:
    """Made by `PlannedStep.state_on_host`.

    Args:
        hold: told this context when it is entered, and None when it is left.
    """

    def __init__(self, hold: Callable[[StateOnHost | None], None], bring_back: Callable[[], None]) -> None:
        self._hold, self._bring_back = hold, bring_back
        self._hooks: list[RemovableHandle] = []
        self._watched: set[int] = set()

    def __enter__(self) -> Self:
        self._hold(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._watched.clear()
        self._hold(None)
        self._bring_back()

    def watch(self, state: StepState) -> None:
        """Bring state back before anybody saves or loads modules and optimizers of a step."""

        def ask(*_args: Any) -> None:
            self._bring_back()

        owners: list[torch.nn.Module | torch.optim.Optimizer]
        owners = [*state.modules.values(), *filter(private.optimizer_hooks, state.optimizers.values())]
        for owner in owners:
            if id(owner) not in self._watched:
                self._watched.add(id(owner))
                self._hooks.append(owner.register_state_dict_pre_hook(ask))
                self._hooks.append(owner.register_load_state_dict_pre_hook(ask))
