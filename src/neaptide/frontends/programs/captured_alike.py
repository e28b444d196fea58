"""Captures a step once more for other sizes: what an earlier capture has shown of it is not found out again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from neaptide.errors import CaptureError
from neaptide.frontends.guards.tensor_facts import Geometry
from neaptide.frontends.objects.unread import ReadError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.frontends.programs.changed_values import changed_arguments, differs_in_others
from neaptide.frontends.programs.joined_graphs import first_difference
from neaptide.frontends.programs.step_programs import StepRequest
from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.state.step_slots import argument_name


def captured_alike(
    capture: Callable[[StepRequest], CapturedStep], like: CapturedStep, request: StepRequest
) -> CapturedStep | None:
    """A capture with dims that vary whose programs are, at the sizes of an earlier one, the programs of that one.

    Two traces agree then, so the step is not run once more to see whether it does the same each time, and values that
    differ between both calls are proved not to be read by the same trace. None where the programs are others.

    Args:
        capture: makes a capture, cut into two parts where the earlier one is.
        like: the earlier one.
        request: what is asked for.
    """
    try:
        now = like.read_signature(request.args, request.kwargs)
    except CaptureError:
        return None
    is_new = any(dim.name not in like.steady.sizes.asked for dim in request.dims)
    if not is_new or differs_in_others(like.signature, now):
        return None
    differing = changed_arguments(like, now)
    counted = like.request.counted if like.request is not None else frozenset()
    known = replace(request, counted=counted, changing=request.changing | like.changing, is_known=True)
    while True:
        try:
            found = capture(replace(known, unread=like.unread | differing))
        except ReadError as error:
            left = differing - error.read
            if left == differing:
                return None
            differing = left
        except CaptureError:
            return None
        else:
            break
    sizes = _sizes_of(like, request)
    if not all(any(_is_same(program, known, sizes) for known in like.programs) for program in found.programs):
        return None
    return replace(
        found,
        request=replace(found.request or request, is_known=False),
        has_no_example=all(sizes.get(dim.name, dim.size) != dim.size for dim in request.dims),
    )


def _is_same(program: CapturedProgram, known: CapturedProgram, sizes: Mapping[str, int]) -> bool:
    """Whether a program is another one at the sizes of that, and holds for them."""
    fixed = {name: size for name, size in sizes.items() if name not in known.sizes.asked}
    inside = all(dim.name in known.sizes.asked or fixed.get(dim.name, 0) in dim for dim in program.sizes.dims)
    if not inside or not _decides_alike(program.decisions, known.decisions):
        return False
    return first_difference(replace(program, decisions=None), replace(known, decisions=None), fixed) is None


def _decides_alike(one: HostPart | None, other: HostPart | None) -> bool:
    """Whether two programs take the same branches by the same numbers, those of the second one."""
    if one is None or other is None:
        return one is other
    return (one.keys, one.outcomes) == (other.keys, other.outcomes) and one.holds(other.numbers)


def _sizes_of(like: CapturedStep, request: StepRequest) -> dict[str, int]:
    """By dim that is asked for, its size in the earlier call; none for what was a dim there as well."""
    shapes = {name: fact.shape for name, fact in like.signature.batch if isinstance(fact, Geometry)}
    found: dict[str, int] = {}
    for dim in request.dims:
        position, axis = dim.places[0]
        size = dict(enumerate(shapes.get(argument_name(position), ()))).get(axis)
        if isinstance(size, int):
            found[dim.name] = size
    return found
