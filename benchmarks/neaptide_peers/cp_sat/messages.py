"""What goes between neaptide and the worker: one JSON object a line, in either direction."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from neaptide_peers.cp_sat.model import CpModel


class SolveRequest(msgspec.Struct, frozen=True):
    """Solve a model.

    Attributes:
        model: what.
        time_s: seconds for it; None for no limit.
        deterministic_s: the solver's own measure of work, about a second each on a fast machine.
        seed: of all random choices.
        workers: threads.
    """

    model: CpModel
    time_s: float | None
    deterministic_s: float | None
    seed: int
    workers: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker has loaded the solver.

    Attributes:
        version: of OR-tools.
    """

    version: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """A solution, better than those before it."""

    values: tuple[int, ...]


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """No solution has a lower objective than this."""

    objective: float


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The search is over.

    Attributes:
        status: OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN or MODEL_INVALID, as the solver says it.
        bound: the best bound of the objective; None if it has none.
        deterministic_s: work that it took.
        detail: what is wrong with an invalid model.
    """

    status: str
    bound: float | None
    deterministic_s: float
    detail: str


Report: TypeAlias = Ready | Found | Bound | Ended

REQUEST: Final = msgspec.json.Decoder(SolveRequest)
REPORT: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def line_of(message: SolveRequest | Report) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"
