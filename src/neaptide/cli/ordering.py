"""The command that orders operations: of a program, a graph file or an ordering problem in the neutral form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli.command import Request
from neaptide.cli.commands import prepared_target
from neaptide.cli.files import GRAPH_SUFFIX, decode_target, is_model, naming, read_graph
from neaptide.cli.model_files.sources import model_of
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import TargetError
from neaptide.files.reading import read_bytes
from neaptide.outcome import Limits
from neaptide.report.document import Document, Table, document
from neaptide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from neaptide.layout.result import LayoutResult
    from neaptide.schedule.order.problem import OrderProblem
    from neaptide.schedule.order.result import OrderResult

_MOST_LAID_OUT: Final = 20_000  # operations; some seconds


def order(request: Request) -> int:
    """Orders operations for the lowest peak, and says what is proved."""
    from neaptide.schedule.order.portfolio import best_order

    problem, limits = _problem(request), request.limits
    request.console.progress(f"ordering {problem.op_count} operations")
    with asking_before_aborting() as interrupt:
        outcome = best_order(problem, limits, interrupt, methods=request.settings.method or None)
    result, arena = _settled(problem, outcome.require(), limits)
    content = _content(problem, result, arena)
    request.deliver(content, lambda: _document(content, problem.op_count), noun="order")
    return exit_codes.DONE


def _settled(
    problem: OrderProblem, result: OrderResult, limits: Limits
) -> tuple[OrderResult, LayoutResult | None]:
    """The order, or one of the same peak that packs better; with its layout. Very large problems are not laid out."""
    from neaptide.layout.from_order import order_buffers
    from neaptide.layout.lower_arena import lower_arena
    from neaptide.schedule.order.evaluate import evaluate_order

    if problem.op_count > _MOST_LAID_OUT:
        return result, None
    left_s = limits.after(result.seconds).time_s
    found = lower_arena(
        result.order, partial(order_buffers, problem), problem.is_order, Limits(time_s=left_s)
    ).require()
    peak = evaluate_order(problem, found.order).peak_bytes
    return replace(result, order=found.order, peak_bytes=peak), found.layout


def _content(problem: OrderProblem, result: OrderResult, arena: LayoutResult | None) -> dict[str, Any]:
    """The result for `--json`."""
    from neaptide.schedule.order.regions.parts import summarise_parts

    return {
        "name": problem.name,
        "order": [problem.ops[op].name for op in result.order],
        "peak_bytes": result.peak_bytes,
        "order_lower_bound_bytes": result.order_lower_bound_bytes,
        "gap": result.gap,
        "certificate": str(result.certificate),
        "states": result.states,
        "solve_seconds": result.seconds,
        **({} if arena is None else {"arena_bytes": arena.arena_bytes}),
        "methods": {
            name: {
                "peak_bytes": method.peak_bytes,
                "solve_seconds": method.seconds,
                "states": method.states,
                **({"note": method.note} if method.note else {}),
            }
            for name, method in result.methods.items()
        },
        "solved_parts": [{**asdict(part), "kind": str(part.kind)} for part in summarise_parts(result.parts)],
    }


def _document(found: Mapping[str, Any], operations: int) -> Document:
    """The result as a table of all methods, those that did not have to run included, and of parts solved exactly."""
    from neaptide.schedule.order.portfolio import METHODS

    best, methods = found["peak_bytes"], found["methods"]
    rows = []
    for name in dict.fromkeys((*METHODS, *methods)):
        method = methods.get(name)
        if method is None:
            rows.append((name, "not run", "", ""))
            continue
        nbytes, none = method["peak_bytes"], "none, see below" if "note" in method else "nothing better"
        above = "" if nbytes is None or not best else f"{nbytes / best - 1:+.2%}"
        peak = none if nbytes is None else format_bytes(nbytes)
        rows.append((name, peak, above, format_seconds(method["solve_seconds"])))
    proof = (
        f"No order has a lower peak ({found['certificate']})."
        if found["certificate"].startswith("optimal")
        else f"No order has a peak below {format_bytes(found['order_lower_bound_bytes'])}; "
        f"the gap is {found['gap']:.2%}."
    )
    parts = tuple(tuple(map(str, part.values())) for part in found["solved_parts"])
    arena = found.get("arena_bytes")
    return document(
        f"{found['name'] or 'problem'}: {operations} operations",
        Table(("method", "peak", "above the best", "seconds"), tuple(rows)),
        *(f"{name}: {method['note']}." for name, method in methods.items() if "note" in method),
        Table(("solved on its own", "parts", "largest, ops", "degree", "states"), parts) if parts else None,
        f"peak: {format_bytes(best)}. {proof}",
        None
        if arena is None
        else f"arena: {format_bytes(arena)} hold all storages at addresses of their own.",
        f"{found['states']} states in {format_seconds(found['solve_seconds'])}",
    )


def _problem(request: Request) -> OrderProblem:
    from neaptide.schedule.order import neutral
    from neaptide.schedule.order.from_graph import order_problem

    path = Path(request.target)
    if is_model(path):
        return model_of(request).problem()
    if path.suffix == GRAPH_SUFFIX:
        graph = read_graph(path)
        with naming(path):
            return order_problem(graph)
    if path.suffix != ".json":
        prepared = prepared_target(request)
        graph, prices = prepared.captured.steady.graph, prepared.prices()
        return order_problem(graph, workspace=prices.workspace, storage_bytes=prices.storage_bytes)
    data = read_bytes(path)
    content = decode_target(path, data)
    form = content.get("format") if isinstance(content, dict) else None
    if form == neutral.FORMAT:
        with naming(path):
            return neutral.from_mapping(content)
    raise TargetError(
        "the file holds no ordering problem",
        where=str(path),
        why=f"its format is {form!r}",
        next_step=f"write {neutral.FORMAT!r}, see docs/reference/order-form.md",
    )
