"""Reports with made-up numbers."""

from neaptide.ir.schedule import Offload
from neaptide.outcome import Termination, TerminationReason
from neaptide.plans import (
    BudgetRecord,
    CopiesRecord,
    MovesSummary,
    Plan,
    PlannedProgram,
    Predictions,
    Recomputation,
    StayCopies,
    TimedCopy,
)
from neaptide.report.model import (
    ComparedShape,
    Comparison,
    ComparisonRow,
    FitChange,
    FitReport,
    LargestSize,
    LiveRow,
    ProfileReport,
    RunReport,
    ShapesComparison,
)

MIB = 2**20
VERSIONS = {"neaptide": "0.1.0", "torch": "2.13.0", "python": "3.11.9"}


def profile(**changes):
    fields = {
        "name": "train.py:factory",
        "device": "this-machine",
        "predicted_peak_bytes": 372 * MIB,
        "predicted_peak_with_workspace_bytes": 380 * MIB,
        "workspace_is_known": True,
        "persistent_bytes": 71 * MIB,
        "lower_bound_bytes": 120 * MIB,
        "order_lower_bound_bytes": 200 * MIB,
        "bytes_by_kind_at_peak": {
            "activation": 250 * MIB,
            "optimizer_state": 48 * MIB,
            "parameter": 24 * MIB,
            "gradient": 48 * MIB,
            "temporary": 2 * MIB,
        },
        "live_at_peak": tuple(
            LiveRow(
                f"h{i}",
                "activation",
                (20 - i) * MIB,
                f"train.py:{i + 1}",
                "y = torch.where(x > 0 | mask, x, 0)",
                f"blocks.{i}",
            )
            for i in range(12)
        ),
        "peak_at": "train.py:31",
        "peak_module": "blocks.11.mlp",
        "peak_phase": "backward",
        "predicted_step_seconds": 0.7,
        "seconds_are_measured": False,
        "capacity_bytes": None,
        "fits": None,
        "over_bytes": None,
        "capture_seconds": 2.5,
        "operations": 1204,
        "unknown_ops": (),
        "rewrites": ("12 fused attention calls written as matmul and softmax",),
        "axes": ("axis of 32 through 1,004 operations, from x dim 0",),
        "not_counted": ("what the allocator keeps and does not use",),
        "versions": VERSIONS,
        "seed": 0,
    }
    return ProfileReport(**{**fields, **changes})


EAGER = ComparisonRow(
    "eager",
    measured_peak_bytes=372 * MIB,
    measured_allocator_peak_bytes=380 * MIB,
    persistent_bytes=71 * MIB,
    step_seconds=0.701,
    step_cpu_seconds=0.7,
    repeats=5,
    loss=8.3,
)
BASELINE = ComparisonRow(
    "baseline",
    predicted_peak_bytes=372 * MIB,
    measured_peak_bytes=372 * MIB,
    predicted_peak_with_workspace_bytes=380 * MIB,
    measured_allocator_peak_bytes=380 * MIB,
    persistent_bytes=71 * MIB,
    step_seconds=0.71,
    step_cpu_seconds=0.709,
    repeats=5,
    loss=8.3,
    max_abs_diff={"loss": 0.0, "gradients": 0.0, "parameters": 0.0},
    bitwise_equal=True,
    predicted_step_seconds=0.65,
)


def planned(**changes):
    fields = {
        "name": "plan",
        "predicted_peak_bytes": 220 * MIB,
        "measured_peak_bytes": 220 * MIB,
        "predicted_peak_with_workspace_bytes": 226 * MIB,
        "measured_allocator_peak_bytes": 226 * MIB,
        "persistent_bytes": 71 * MIB,
        "step_seconds": 0.842,
        "step_cpu_seconds": 0.84,
        "repeats": 5,
        "loss": 8.3,
        "max_abs_diff": {"loss": 0.0, "gradients": 1.5e-7, "parameters": 2.2e-9},
        "bitwise_equal": False,
        "predicted_step_seconds": 0.79,
        "recomputed": 42,
        "recomputed_bytes": 170 * MIB,
        "moved_updates": 36,
        "status": "feasible",
    }
    return ComparisonRow(**{**fields, **changes})


def comparison(**changes):
    fields = {
        "name": "zoo:gpt2@small",
        "device": "this-machine",
        "rows": (EAGER, BASELINE, planned()),
        "budget_bytes": 228 * MIB,
        "lower_bound_bytes": 120 * MIB,
        "order_lower_bound_bytes": 200 * MIB,
        "is_for_bytes": False,
        "bounds_are_of_rewritten": False,
        "plan_seconds": 1.25,
        "capture_seconds": 2.5,
        "high_water_mark_bytes": 900 * MIB,
        "notes": ("gradients are summed in another order",),
        "versions": VERSIONS,
        "seed": 0,
    }
    return Comparison(**{**fields, **changes})


def run(**changes):
    fields = {
        "name": "zoo:gpt2@small",
        "steps": 3,
        "step_seconds": 0.84,
        "losses": (8.3, 8.1, 7.9),
        "predicted_peak_bytes": 220 * MIB,
        "measured_peak_bytes": 220 * MIB,
        "predicted_peak_with_workspace_bytes": 226 * MIB,
        "measured_allocator_peak_bytes": 225 * MIB,
        "max_abs_diff": {},
        "bitwise_equal": None,
        "calls": "3 planned, 0 eager",
        "versions": VERSIONS,
        "seed": 0,
    }
    return RunReport(**{**fields, **changes})


def fit():
    """A step that a card is too small for."""
    changes = FitChange("a plan", "--peak 14GiB", 12 * MIB, True, 1.2), FitChange("float16", "", None, None)
    return FitReport(
        name="zoo:gpt2@small",
        device="t4",
        capacity_bytes=14 * MIB,
        predicted_peak_bytes=20 * MIB,
        library_bytes=MIB,
        fits=False,
        margin_bytes=-6 * MIB,
        captured_on="cuda",
        predicted_step_seconds=0.2,
        largest=(LargestSize({}, "batch", 64, 3, None, None), LargestSize({}, "seq", 64, None, None, None)),
        changes=changes,
        notes=("what a longer batch takes",),
        not_exact=("the workspace of cuDNN",),
        capture_seconds=2.5,
        versions=VERSIONS,
        seed=0,
    )


def shapes_comparison():
    return ShapesComparison(
        name="zoo:gpt2@small",
        device="this-machine",
        dims=("batch in 1..64",),
        limit_bytes=228 * MIB,
        shapes=tuple(ComparedShape({"batch": size}, (EAGER, planned())) for size in (1, 64)),
        repeats=5,
        plan_seconds=1.25,
        notes=("gradients are summed in another order",),
        capture_seconds=2.5,
        versions=VERSIONS,
        seed=0,
    )


def predictions(**changes):
    fields = {
        "peak_bytes": 220 * MIB,
        "peak_with_workspace_bytes": 226 * MIB,
        "baseline_peak_bytes": 372 * MIB,
        "baseline_peak_with_workspace_bytes": 380 * MIB,
        "persistent_bytes": 71 * MIB,
        "lower_bound_bytes": 120 * MIB,
        "order_lower_bound_bytes": 200 * MIB,
        "seconds": 0.79,
        "baseline_seconds": 0.65,
    }
    return Predictions(**{**fields, **changes})


AGAIN = ((0,), *((i, i + 1) for i in range(1, 12)))
MOVES = MovesSummary(
    updates_moved_earlier=8,
    moved=tuple(f"blocks.{i}.weight" for i in range(8)),
    recomputations=tuple(
        Recomputation(i, f"h{i}", (i + 1) * MIB, (i + 1) * 1e-3, AGAIN[i], 100 + i) for i in range(12)
    ),
)


def program(**changes):
    fields = {
        "role": "steady",
        "name": "step",
        "fingerprint": "abc",
        "node_count": 1204,
        "sequence": tuple(range(1204)) + tuple(node for nodes in AGAIN for node in nodes) + (3,),
        "strategy": "greedy_recompute",
        "budget_bytes": 228 * MIB,
        "moves": MOVES,
        "predictions": predictions(),
        "termination": Termination(TerminationReason.FEASIBLE, "time", "the budget is met"),
    }
    return PlannedProgram(**{**fields, **changes})


def copies():
    """Three stays: the second waits for the first, and the third is waited for."""
    return CopiesRecord(
        (
            StayCopies("h0", 8 * MIB, TimedCopy(0.1, 0.1, 0.18), TimedCopy(0.5, 0.5, 0.58)),
            StayCopies("h1 <&>", 4 * MIB, TimedCopy(0.12, 0.18, 0.22), TimedCopy(0.6, 0.6, 0.64)),
            StayCopies("h2", 2 * MIB, TimedCopy(0.3, 0.3, 0.32), TimedCopy(0.7, 0.7, 0.72)),
        ),
        ((0.71, 0.72),),
    )


def offloaded(**changes):
    """A program whose storages wait on the host."""
    offloads = tuple(Offload(k, 0, k, k + 1, k + 20, k + 30) for k in range(3))
    made = predictions(host_bytes=14 * MIB, exposed_seconds=0.01)
    return program(**{"offloads": offloads, "copies": copies(), "predictions": made, **changes})


def plan(*programs, **changes):
    first = program(role="first_1", moves=MovesSummary())
    fields = {
        "axes": (
            "axis of 32 through 1,004 operations, from x dim 0",
            "not split, for want of a row of axes: 3 of 1,004 operations, mine.bend (3)",
        ),
        "programs": programs or (program(), first),
        "name": "zoo:gpt2@small",
        "budget": BudgetRecord("60%", "+30%"),
        "seed": 0,
        "device": "this-machine",
        "versions": VERSIONS,
    }
    return Plan(**{**fields, **changes})
