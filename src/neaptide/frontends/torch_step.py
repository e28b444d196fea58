"""One graph for a whole training step: forward, loss, backward and the optimizer's update."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack

import torch

from neaptide.errors import CaptureError, PlanMismatch, UsageError
from neaptide.frontends.card.pretended import Card, pretended
from neaptide.frontends.dims.dynamic_dims import Dynamic, find_dims
from neaptide.frontends.guards.mode_facts import check_modes
from neaptide.frontends.guards.signature import SignatureReader
from neaptide.frontends.guards.size_guard import SizeGuard
from neaptide.frontends.objects.unread import UnreadNames
from neaptide.frontends.programs.captured import CapturedStep, StepRequest
from neaptide.frontends.programs.captured_alike import captured_alike, not_reading
from neaptide.frontends.programs.host_bytes import kept_bytes, with_kept
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.programs.host_cut import cut_again, not_cut, on_the_way
from neaptide.frontends.programs.joined_ranges import joined_programs
from neaptide.frontends.programs.same_program import is_plain_program
from neaptide.frontends.programs.step_programs import Capture, LaterCallError, Programs, counted_in, state_of
from neaptide.frontends.recording._torch_sizes import keeps_sizes
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.trace.trace_outputs import LeftOnceError, refuse_open_results
from neaptide.frontends.watch.first_writes import FirstWrites
from neaptide.frontends.watch.trace_watch import LeftTensor, StateWrittenError

logger = logging.getLogger(__name__)


class CaptureOptions(TypedDict, total=False):
    """How a step is captured.

    Attributes:
        state: modules, optimizers and tensors that cannot be found by looking through the step.
        name: of the graph, for reports.
        changing: names of Python numbers, as `Signature.changed_numbers` gives them, that become inputs of the
            program. One that decides a branch, a shape or a type cannot; then all stay guards.
        dynamic: by the name of an argument, or a path such as `batch.input_ids`, dims that may vary, with their
            ranges: `{"batch": {0: (1, 64), 1: (16, 4096)}}`, or `torch.export.Dim`s where dims are one size.
        checkpoints: `keep`: functions under `torch.utils.checkpoint` leave the state that eager leaves. `undo`: they run
            once, as plain code.
        like: an earlier capture of this step, at other sizes. Where it is the same program, less has to be traced.
        fixed: names of dims that have the size of this call alone, as `DynamicDim.name` has them.
        replans: a call that differs is captured again. So where the first call is another program than all later ones, by
            Python state that it finds, the capture is of that call alone; and where a count of the step leads to a
            branch at a later call that cannot be captured, the step is refused now.
        card: that the step is captured for: its state and batch are taken to lie there, wherever they are. It need not be
            there, and such a capture is for planning alone.
    """

    state: Any
    name: str
    changing: frozenset[str]
    dynamic: Dynamic | None
    checkpoints: str
    like: CapturedStep | None
    fixed: frozenset[str]
    replans: bool
    card: Card | None


def capture_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    **how: Unpack[CaptureOptions],
) -> CapturedStep:
    """Capture a training step without running it, allocating tensors or changing the user's objects.

    Args:
        step: `step(*args, **kwargs)` does forward, loss, backward and `optimizer.step()`.
        args: a batch as in training; only shapes, strides, dtypes and devices matter.
        kwargs: further arguments.
        **how: see `CaptureOptions`.
    """
    began = time.perf_counter()
    check_modes()
    given, dynamic, like = kwargs or {}, how.get("dynamic"), how.get("like")
    if dynamic and not keeps_sizes():
        raise UsageError(
            f"dims cannot vary with torch {torch.__version__}",
            why="its composite operations take the size of the example for some sizes that vary",
            next_step="install torch 2.13 or later, or leave dynamic out: each shape is then planned by itself",
        )
    found = find_dims(step, args, given, dynamic) if dynamic else ()
    dims = tuple(replace(d, low=d.size, high=d.size) if d.name in how.get("fixed", ()) else d for d in found)
    name = how.get("name") or getattr(step, "__qualname__", type(step).__name__)
    request = StepRequest(
        *(args, given, how.get("state"), str(name), how.get("changing", frozenset())),
        undoes_checkpoints=how.get("checkpoints") == "undo",
        dims=dims,
        replans=how.get("replans", False),
    )
    with _collector_paused(), pretended(how.get("card")):
        try:
            known = (
                captured_alike(_recapture(step, like), like, request) if like is not None and dims else None
            )
            captured = known or _captured_somehow(step, request)
        except CaptureError as refusal:  # the frames and errors on the way to it say nothing about the step
            raise refusal.with_traceback(None) from refusal.__cause__
    for program in captured.programs:
        if captured.host is None or not captured.host.goes_on(program.returned):
            refuse_open_results(program.returned.open_results)
    return replace(captured, seconds=time.perf_counter() - began)


def without_reading(
    captured: CapturedStep, args: tuple[Any, ...], kwargs: Mapping[str, Any], values: UnreadNames
) -> CapturedStep | None:
    """A capture of a call in which some values are no guards any more, as they are proved not to be read.

    The call differs from `captured` in those values alone. Each program is one of `captured`, which it may have more of.
    None where a value is read, or may be.
    """
    request = replace(captured.request, args=args, kwargs=kwargs)
    with _collector_paused():
        found = not_reading(_recapture(captured.step, captured), request, values, captured)
    return found if found is not None and not values - found.unread else None


def rebind_step(
    captured: CapturedStep,
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
) -> CapturedStep:
    """The same capture for other objects of the same make: another model from the same factory, say.

    Nothing is traced again; names, shapes, flags and hyper-parameters must all agree.
    """
    try:
        host = None if captured.host is None else cut_again(captured.host, step)
    except LookupError as reason:
        raise PlanMismatch(
            "the host code of this step cannot run after the program", why=str(reason)
        ) from None
    assert not captured.last_writes
    before = captured.first_writes
    found = state_of(step, host, state, captured.unread)
    writes = replace(FirstWrites.of(before.writes, found), overwritten=before.overwritten)
    with writes.done():
        found = state_of(step, host, state, captured.unread)
        _set_unused_aside(found, {slot.name for slot in captured.state.unused})
        found.environment = list(captured.state.environment)
        found.counted, found.flagged = captured.state.counted, captured.state.flagged
        found.undoes_checkpoints = captured.state.undoes_checkpoints
        reader = SignatureReader(found, captured.changing, captured.sizes)
        again = replace(captured, step=step, state=found, reader=reader, first_writes=writes, host=host)
        signature = again.read_signature(args, kwargs or {})
    differences = signature.of_any_objects().differences(captured.signature.of_any_objects())
    if differences:
        raise PlanMismatch(
            "these objects differ from those that the step was captured with",
            why="; ".join(differences[:4]),
            next_step="make the factory return the same model and batch each time",
        )
    return replace(again, signature=signature)


# -- the whole step, or its head


def _captured_somehow(step: Callable[..., Any], request: StepRequest) -> CapturedStep:
    """The whole step; or up to its host code; or the same with numbers that it counts in as inputs and outputs."""
    try:
        return _captured(Capture(step, request))
    except CaptureError as refusal:
        entry = refusal.entry if isinstance(refusal, LaterCallError) else None
        way = on_the_way(step, request, entry)
        try:
            return _captured_before_host_code(step, request, refusal, way.cut)
        except CaptureError as refused:
            counted = counted_in(refusal) - request.counted
            also = replace(request, counted=request.counted | (counted or way.counts))
            if also.counted == request.counted:
                raise
            try:
                if not counted:  # the whole step was refused for something else
                    with contextlib.suppress(CaptureError):
                        return _captured_before_host_code(
                            step, also, refusal, partial(way.cut, but_counts=True)
                        )
                return _captured_somehow(step, also)
            except LaterCallError:
                raise
            except CaptureError as reason:
                names = ", ".join(sorted(also.counted - request.counted))
                logger.debug("not with %s as inputs and outputs: %s", names, reason)
                where = "" if reason.where is None else f" ({reason.where})"
                refused.next_step = f"{refused.next_step or 'take it out of the step'}; the program cannot count in {names} either: {reason.what}{where}"
                refused.args = (refused.render(),)
            raise


def _captured_before_host_code(
    step: Callable[..., Any], request: StepRequest, refusal: CaptureError, cut: Callable[[], HostCode]
) -> CapturedStep:
    """The step up to the first statement that has an effect on the host, which runs after it from there on."""
    try:
        host = cut()
    except LookupError as reason:
        raise not_cut(refusal, str(reason)) from refusal.__cause__
    try:
        return _captured_head(step, host, request)
    except CaptureError as reason:
        raise not_cut(refusal, reason.why or reason.what) from refusal.__cause__


def _captured_head(step: Callable[..., Any], host: HostCode, request: StepRequest) -> CapturedStep:
    """A step of which only the head is captured."""
    stepped: set[int] = set()
    traced = host.watched_head(stepped, host.head_state(request.extra, request.unread))
    request = replace(request, clears_gradients=host.clears_gradients)

    def capture(request: StepRequest) -> CapturedStep:
        return _captured(Capture(step, request, host, traced))

    captured = capture(request)
    written = UnreadNames(host.written_values(captured.state))
    captured = not_reading(capture, request, written - request.unread, captured) or captured
    request = replace(request, unread=captured.unread)
    numbers = host.written_numbers(captured.state) - request.changing
    if numbers:
        captured = capture(replace(request, changing=request.changing | numbers))
    for program in captured.programs:
        host.refuse_odd_variables(program.returned)
    objects = {place.name: place.get() for place in captured.state.objects}
    keys = [key for program in captured.programs for key in program.returned.borrowed.values()]
    host.refuse_training(stepped, [objects[name] for kind, name in keys if kind == "object"])
    kept = host.kept
    if kept is None:  # a later capture is one of the same program, whatever a log has grown to by then
        with captured.first_writes.done():  # the head's state was found as it is after them
            kept = kept_bytes(find_state(step, request.extra), captured.state)
    noted = (replace(p, rewrites=(*p.rewrites, host.describe())) for p in captured.programs)
    steady, *first = (with_kept(program, kept) for program in noted)
    return replace(captured, steady=steady, first=tuple(first), host=replace(host, kept=kept))


def _recapture(step: Callable[..., Any], before: CapturedStep) -> Callable[[StepRequest], CapturedStep]:
    """Captures a step once more, cut where it was cut before."""
    if before.host is not None:
        return partial(_captured_head, step, before.host)
    return lambda request: _captured(Capture(step, request))


def _captured(capture: Capture) -> CapturedStep:
    request = capture.request
    SignatureReader(capture.state).read(
        request.args, request.kwargs
    )  # refuses arguments that cannot be guarded
    if request.counted and not request.is_known:
        capture.check_counts(request.changing)
    try:
        programs = joined_programs(capture)
    except StateWrittenError as refusal:
        return _captured_after_writes(capture, refusal)
    return _assembled(capture, programs)


def _assembled(capture: Capture, found: Programs) -> CapturedStep:
    (programs, changing), state, request = found, capture.state, capture.request
    state.flagged = frozenset(
        name
        for program in programs
        for name, flag in program.exit.flags.items()
        if program.entry.flags.get(name) is not flag
    )
    programs = [program.with_flags_of(state.flagged) for program in programs]
    steady = programs[-1]
    used = {slot.name for program in programs for slot in program.inputs}
    used |= state.flagged | {key[1] for program in programs for key in program.returned.borrowed.values()}
    _set_unused_aside(state, {slot.name for slot in state.tensors if slot.role == "tensor"} - used)
    held = [program.sizes for program in programs]
    sizes = SizeGuard(request.dims, held, request.args, request.kwargs) if request.dims else None
    reader = SignatureReader(state, changing, sizes)
    return CapturedStep(
        capture.step,
        state,
        steady,
        tuple(program for program in programs[:-1] if not steady.covers(program)),
        reader.read(request.args, request.kwargs),
        reader,
        replace(request, args=(), kwargs={}),
        changing=changing,
        host=capture.host,
        sizes=sizes,
    )


def _set_unused_aside(found: StepState, names: set[str]) -> None:
    """Loose tensors that no program reads are neither inputs nor guarded."""
    found.unused = [slot for slot in found.tensors if slot.name in names]
    found.tensors = [slot for slot in found.tensors if slot.name not in names]


# -- steps that write Python state once


def _captured_after_writes(capture: Capture, refusal: StateWrittenError) -> CapturedStep:
    """The step as it is once it has written plain data that it would write again at every call."""
    if refusal.trace is None or not all(write.can_be_done for write in refusal.writes):
        raise refusal
    writes = FirstWrites.of(refusal.writes, capture.state)
    with writes.done():
        try:
            later = capture.anew()
            later.state.left = [place for place, _ in writes.left]
            programs = _later_programs(later)
            again = later.trace(refusal.trace.entry)
        except StateWrittenError:
            raise refusal from None
        read = {slot.name for program in programs[0] for slot in program.inputs}
        kept = {place.identity for slot in later.state.tensors if slot.name in read for place in slot.places}
        captured = _assembled(later, programs)
    overwritten = {write.name for place, write in writes.found if place.identity not in kept}
    lacks_tensor = any(
        place.identity in kept
        and isinstance(write.after, LeftTensor)
        and not isinstance(write.before, torch.Tensor)
        for place, write in writes.found
    )
    is_left_once = len(later.state.left) < len(writes.left)
    first_call, later_call = (
        capture.program_of(refusal.trace),
        later.program_of(again.without_outputs("left")),
    )
    if is_left_once or lacks_tensor or not is_plain_program(first_call, {}, later_call):
        if capture.request.replans:
            return _captured_for_one_call(capture, writes)
        raise CaptureError(
            f"the step writes {refusal.writes[0].name}, and computes something else from then on",
            where=refusal.where,
            why="its first call is another program than all later ones",
            next_step="call the step once before it is planned",
        )
    return replace(captured, first_writes=replace(writes, overwritten=frozenset(overwritten)))


def _later_programs(later: Capture) -> Programs:
    """The programs after the first call; places that only that one leaves a tensor in are taken from `state.left`."""
    try:
        return joined_programs(later)
    except LeftOnceError as once:
        if not later.request.replans:
            raise
        later.state.left.remove(once.place)
        return _later_programs(later)


def _captured_for_one_call(capture: Capture, writes: FirstWrites) -> CapturedStep:
    """The step as it is before it has written what it writes once; that is written after the program."""
    capture.state.left = [place for place, _ in writes.left]
    capture.state.once = {place.identity for place, _ in writes.found}
    alone = capture.with_dims(())
    found = alone.first_program(capture.request.changing)
    return replace(_assembled(alone, found), last_writes=writes)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A capture makes many small objects and hardly a cycle; looking for cycles costs it a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
