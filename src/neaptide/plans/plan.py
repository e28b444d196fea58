"""Plan: what the planner decided, as plain frozen data that is saved, reviewed as a diff, and applied elsewhere.

A plan file is JSON with a format version and a checksum over its content. Reading one never executes anything. A
checksum is no proof: what is read is checked, by itself here and beside its program by `planner.check_plan`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from neaptide.errors import PlanError, UnreadableFile
from neaptide.files.reading import read_bytes
from neaptide.files.writing import write_atomic
from neaptide.plans.content import check_content
from neaptide.plans.plan_file import AGAIN, check_known, file_content, file_text
from neaptide.plans.records import STEADY, BudgetRecord, Count, PlannedProgram
from neaptide.plans.shapes import ShapesProgram, ShapesRecord


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a step: one or more programs and what they were made for.

    Attributes:
        programs: one for each graph; none where the plan is for all shapes in some ranges.
        signature: facts about the step that it was made for, as (name, text): to say what differs.
        numerics: what was allowed: `bitwise`, or `close`, where sums may be taken in another order. Calls that the plan
            does not cover are planned alike.
        all_shapes: the plan of a step whose dims may vary; None where it is for one shape.
        checkpoints: `undo` where functions under `torch.utils.checkpoint` run once, as plain code.
    """

    programs: tuple[PlannedProgram, ...]
    name: str = ""  # of what was planned
    budget: BudgetRecord = field(default_factory=BudgetRecord)  # as it was asked for
    seed: Count = 0  # of the search
    device: str = ""  # name of the device whose costs were used
    versions: Mapping[str, str] = field(default_factory=dict)  # of the packages that it was made with
    atomic: bool = False  # updates wait for everything that can fail
    signature: tuple[tuple[str, str], ...] = ()
    captured_on: str = ""  # kind of the device whose kernels the step was captured with, such as `cpu`
    allow_nondeterministic: bool = False  # what is recomputed may give other bits than the first time
    numerics: Literal["bitwise", "close"] = "bitwise"
    axes: tuple[str, ...] = ()  # of the usual step as it was captured, in words
    all_shapes: ShapesRecord | None = None
    checkpoints: Literal["keep", "undo"] = "keep"

    @property
    def bits_may_vary(self) -> bool:
        """Whether it recomputes operations whose bits differ from run to run."""
        return self.allow_nondeterministic

    @property
    def entries(self) -> tuple[PlannedProgram | ShapesProgram, ...]:
        """One for each graph of the step, for one shape or for all of them."""
        return self.programs if self.all_shapes is None else self.all_shapes.programs

    @property
    def main(self) -> PlannedProgram | ShapesProgram:
        """The entry of every step but the first ones."""
        return next((entry for entry in self.entries if entry.role == STEADY), self.entries[-1])

    def program(self, role: str) -> PlannedProgram:
        """The program of a role.

        Raises:
            PlanError: when the plan has none.
        """
        for program in self.programs:
            if program.role == role:
                return program
        roles = ", ".join(program.role for program in self.programs)
        raise PlanError(f"the plan has no program for {role!r}", why=f"it has: {roles or 'none'}")

    def to_json(self) -> str:
        """The plan as the text of a plan file; equal plans give equal texts."""
        try:
            return file_text(msgspec.to_builtins(self))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise PlanError("the plan cannot be written as JSON", why=str(error)) from error

    @staticmethod
    def from_json(text: str | bytes, *, path: str | Path | None = None) -> Plan:
        """Read the text of a plan file.

        Args:
            text: the whole file.
            path: where it comes from, for messages.

        Raises:
            PlanError: for text that is truncated, edited, of an unknown version or no plan at all, and for a plan
                that contradicts itself.
        """
        where = None if path is None else str(path)
        content = file_content(text, where)
        try:
            plan = msgspec.convert(content, Plan)
        except msgspec.ValidationError as error:
            what = f"the plan file lacks a field or has a wrong one: {error}"
            raise PlanError(what, where=where, next_step=AGAIN) from error
        check_known(content, msgspec.to_builtins(plan), where)
        try:
            check_content(plan)
        except PlanError as error:
            raise PlanError(error.what, where=where, next_step=error.next_step) from error
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan file; a plan that stood there stays until the new one is whole."""
        text = self.to_json()
        try:
            write_atomic(path, text)
        except OSError as error:
            why = error.strerror or str(error)
            raise PlanError("the plan cannot be saved", where=str(path), why=why) from error

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file.

        Raises:
            PlanError: when there is no such file, or it is truncated, edited, of an unknown version or contradicts
                itself.
        """
        try:
            text = read_bytes(path)
        except UnreadableFile as error:
            raise PlanError(
                "the plan cannot be read", where=str(path), why=error.why, next_step=error.next_step
            ) from error
        return Plan.from_json(text, path=path)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the plan to a model and its step; see `neaptide.api.apply`."""
        return importlib.import_module("neaptide.api").apply(self, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Say what the plan does and why; see `neaptide.api.explain`."""
        return importlib.import_module("neaptide.api").explain(self, *args, **kwargs)
