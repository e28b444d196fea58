"""Live bytes against peaks computed by hand, and against the allocator's own events."""

import gc
import subprocess
import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from torch import nn

from neaptide.cost.cards.allocator_events import record
from neaptide.errors import UsageError
from neaptide.runtime.measuring.meter import LiveBytesMeter, measure_step, storage_bytes
from support.dispatch_modes import TimelineMeter
from support.drawn import examples

KB = 4000  # bytes of 1000 floats


def peak_of(program, persistent=()):
    with TimelineMeter(persistent) as meter:
        program()
    return meter


def test_hand_computed_peak():
    def program():
        a = torch.rand(1000)
        b = a * 2
        c = b + 1
        del b
        d = c.sum()
        del a, c
        return d

    meter = peak_of(program)
    assert meter.peak_bytes == 3 * KB
    assert tuple(meter.timeline) == (
        ("aten.rand.default", KB),
        ("aten.mul.Tensor", 2 * KB),
        ("aten.add.Tensor", 3 * KB),
        ("aten.sum.default", 2 * KB + 4),
    )
    assert meter.persistent_bytes == 0
    assert meter.live_bytes == 0
    assert meter.unregistered == ()


def test_lists_tuples_and_none_outputs():
    def program():
        xs = [torch.rand(1000) for _ in range(3)]
        ys = torch._foreach_add(xs, 1.0)
        torch._foreach_mul_(ys, 2.0)
        values, positions = torch.sort(ys[0])
        whole = torch.cat([values, ys[1]])
        return whole, positions

    # xs and ys, sorted values and positions, and the concatenation.
    assert peak_of(program).peak_bytes == 6 * KB + 3 * KB + 2 * KB


def test_resize_and_storages_larger_than_their_shape():
    def program():
        out = torch.empty(0)
        a = torch.rand(1000)
        torch.add(a, a, out=out)
        a.resize_(2000)

    assert peak_of(program).peak_bytes == KB + 2 * KB

    a, b = torch.rand(32, 64), torch.rand(32, 64)
    meter = peak_of(lambda: nn.functional.mse_loss(a, b), [a, b])
    loss_storage_bytes = nn.functional.mse_loss(a, b).untyped_storage().nbytes()
    assert meter.peak_bytes == 2 * 32 * 64 * 4 + loss_storage_bytes


def test_persistent_counts_once_from_the_start_until_it_dies():
    state = {"w": torch.rand(1000), "v": torch.rand(500)}
    alias = state["w"].view(10, 100)

    def program():
        state["v"] = state["v"] + 1  # 2000 more while both exist
        del state["w"]  # the alias still holds it
        return state["v"] * 2

    meter = LiveBytesMeter([*state.values(), alias])
    assert meter.persistent_bytes == storage_bytes([*state.values(), alias]) == 6000
    del alias
    with meter:
        program()
    assert meter.peak_bytes == 8000
    assert meter.live_bytes == 2000


def test_unregistered_input_is_counted_and_named():
    known, unknown = torch.rand(1000), torch.rand(1000)
    meter = peak_of(lambda: [known + 1, torch.cat([unknown, known])], [known])
    assert meter.unregistered == ("aten.cat.default",)
    assert meter.peak_bytes == 5 * KB


def test_other_devices_and_what_has_no_storage_are_not_counted():
    def program():
        torch.empty(10**9, device="meta") + 1
        made = torch.rand(1000)
        del made
        torch.eye(3).to_sparse() * 2

    assert peak_of(program).peak_bytes == KB


@pytest.mark.parametrize("was_on", [True, False])
def test_collector_is_off_inside_and_restored_after(was_on):
    seen = []
    (gc.enable if was_on else gc.disable)()
    try:
        peak_of(lambda: seen.append(gc.isenabled()))
        assert (seen, gc.isenabled()) == ([False], was_on)
    finally:
        gc.enable()


def test_meter_keeps_nothing_alive_and_is_used_once():
    tensor = torch.rand(10)
    gone = weakref.ref(tensor)
    meter = LiveBytesMeter([tensor])
    del tensor
    assert gone() is None
    assert meter.live_bytes == 0
    with meter:
        pass
    with pytest.raises(UsageError, match="measures one run"), meter:
        pass


def test_error_in_the_program_leaves_the_mode():
    meter = LiveBytesMeter()
    with pytest.raises(ZeroDivisionError), meter:
        _ = torch.rand(1000).numel() // 0
    torch.rand(5000)
    assert meter.peak_bytes == KB
    assert gc.isenabled()


def test_measure_step_with_state_that_is_replaced():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.rand(16, 32), torch.randint(10, (16,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    def persistent():
        state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
        grads = [p.grad for p in net.parameters() if p.grad is not None]
        return [*net.parameters(), *grads, *state, x, y]

    step()
    measured = measure_step(step, persistent)
    assert measured.unregistered == ()
    assert measured.persistent_bytes == storage_bytes(persistent())
    assert measured.measured_peak_bytes > measured.persistent_bytes
    # The gradients of the call before are persistent at the start and die in `zero_grad`.
    grads_bytes = sum(t.nbytes for t in persistent()) // 3
    assert measured.measured_peak_bytes < measured.persistent_bytes + grads_bytes
    # Python numbers (the learning rate and the like) take a few bytes inside operators.
    assert 0 <= measured.measured_allocator_peak_bytes - measured.measured_peak_bytes <= 16
    assert measured.high_water_mark_bytes is None or measured.high_water_mark_bytes > 0


def test_measure_step_sees_workspace():
    values = torch.rand(1000)
    measured = measure_step(lambda: torch.sort(values), lambda: [values])
    assert measured.measured_peak_bytes == KB + 12_000
    assert measured.measured_allocator_peak_bytes == KB + 12_000 + 8000


@pytest.mark.slow
def test_first_use_in_a_process_is_exact():
    # Whatever the framework loads on first use must not keep the program's tensors alive.
    source = """
import torch
from neaptide.runtime.measuring.meter import LiveBytesMeter

def program():
    a, b = torch.rand(10, 100), torch.rand(10, 100)
    return a @ b.t()

with LiveBytesMeter() as meter:
    program()
print(meter.peak_bytes, meter.live_bytes)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["8400", "0"]


def test_compiled_frames_stay_compiled_under_the_meter():
    compiled_graphs = []

    def backend(graph, _):
        compiled_graphs.append(graph)
        return graph.forward

    x = torch.rand(1000)
    with LiveBytesMeter([x]):
        torch.compile(lambda t: t.sin() + 1, backend=backend)(x)
    assert len(compiled_graphs) == 1


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["new", "double", "view", "in_place", "cat", "drop"]), st.integers(0, 99)),
    max_size=25,
)


def run_actions(actions):
    """Runs random actions on a list of tensors; all tensors are dropped at the end."""
    tensors = []
    for action, number in actions:
        at = number % len(tensors) if tensors else None
        if action == "new":
            tensors.append(torch.empty(number + 1))
        elif at is None:
            continue
        elif action == "double":
            tensors.append(torch.neg(tensors[at]))
        elif action == "view":
            tensors.append(tensors[at].view(1, -1)[0])
        elif action == "in_place":
            tensors[at].neg_()
        elif action == "cat":
            tensors.append(torch.cat(tensors))
        elif action == "drop":
            del tensors[at]


def modelled_peak_bytes(actions):
    """The same program as arithmetic: each tensor is (storage, elements), storages have sizes."""
    tensors, sizes, peak = [], {}, 0
    for action, number in actions:
        at = number % len(tensors) if tensors else None
        if action == "new":
            made = number + 1
        elif at is None or action == "in_place":
            continue
        elif action == "double":
            made = tensors[at][1]
        elif action == "cat":
            made = sum(elements for _, elements in tensors)
        elif action == "view":
            tensors.append(tensors[at])
            continue
        else:
            del tensors[at]
            continue
        sizes[len(sizes)] = made * 4
        tensors.append((len(sizes) - 1, made))
        peak = max(peak, sum(sizes[storage] for storage in {storage for storage, _ in tensors}))
    return peak


@given(ACTIONS)
@settings(max_examples=examples(120), deadline=None)
def test_random_programs_peak_as_modelled_and_as_allocated(actions):
    meter = peak_of(lambda: run_actions(actions))
    assert meter.peak_bytes == modelled_peak_bytes(actions)
    assert meter.live_bytes == 0
    assert record(lambda: run_actions(actions)).peak_bytes() == meter.peak_bytes
