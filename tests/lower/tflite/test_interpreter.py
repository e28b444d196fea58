"""Planned files in TensorFlow Lite Micro: the predicted arena is the measured one, and the outputs are the same bits."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from frontends.tflite.small_tflite import (
    calling,
    chain,
    elementwise,
    enlarged,
    filtered,
    nested,
    reduced,
    reshaped,
)
from neaptide.frontends.tflite.reader import decode_tflite
from neaptide.frontends.tflite.to_graph import TfliteGraph, tflite_graph
from neaptide.lower.tflite.files import header_text, planned_bytes, write_planned
from neaptide.lower.tflite.interpreter_arena import Request, arena_requests, greedy_arena
from neaptide.lower.tflite.plan import TflmPlan, plan_tflm
from neaptide_corpus.tflite_graphs import irregular_network
from neaptide_corpus.tflite_writer import TfliteFile
from tflm_runs import run_tflm

pytest.importorskip("tflite_micro")


def planned(file: TfliteFile, *, on_operands: bool = False) -> tuple[TfliteGraph, TflmPlan]:
    model = decode_tflite(file.to_bytes(), name="net.tflite")
    source = tflite_graph(model, on_operands=on_operands)
    return source, plan_tflm(source)


def judged(
    folder: Path, files: list[TfliteFile], *, smallest: bool = False, on_operands: bool = False
) -> None:
    """Writes files and their plans, runs all of them, and compares."""
    plans, paths = [], []
    for index, file in enumerate(files):
        original = folder / f"original{index}.tflite"
        original.write_bytes(file.to_bytes())
        source, plan = planned(file, on_operands=on_operands)
        plans.append(plan)
        paths += [original, write_planned(source, plan, folder, f"planned{index}")[0]]
    runs = run_tflm(paths, smallest=smallest)
    for plan, before, after in zip(plans, runs[::2], runs[1::2], strict=True):
        assert before.outputs == after.outputs
        assert (before.head_bytes, after.head_bytes) == (plan.baseline_arena_bytes, plan.arena_bytes)
        assert after.head_bytes <= before.head_bytes
        assert after.tail_bytes <= plan.variable_bytes + plan.interpreter_bytes
        if smallest:
            assert after.smallest_bytes <= before.smallest_bytes


def test_irregular_networks_need_what_was_predicted_and_give_the_same_bits(tmp_path):
    judged(tmp_path, [irregular_network(seed) for seed in (0, 1, 2, 3, 4, 5, 8, 11)])


def test_scratch_variables_views_and_chains_are_counted_as_the_interpreter_does(tmp_path):
    reductions = [
        reduced(name, dtype) for name in ("MEAN", "SUM", "REDUCE_MAX") for dtype in ("int8", "float32")
    ]
    others = [enlarged("int8"), enlarged("float32"), filtered(), reshaped(), chain(5, (1, 512))]
    judged(tmp_path, [*reductions, *others])


def test_operators_that_run_subgraphs_are_planned_and_the_subgraphs_stay(tmp_path):
    files = [calling(irregular_network(seed)) for seed in (0, 2, 3, 4)]
    judged(tmp_path, [*files, nested(3)])
    judged(tmp_path, files[:2], on_operands=True)
    plans = [planned(file)[1] for file in files]
    assert all(plan.arena_bytes < plan.baseline_arena_bytes for plan in plans)
    for file, plan in zip(files, plans, strict=True):
        written = decode_tflite(bytes(planned_bytes(decode_tflite(file.to_bytes()), plan)))
        assert written.subgraphs[1:] == tuple(
            replace(graph, operators_at=there.operators_at)
            for graph, there in zip(
                decode_tflite(file.to_bytes()).subgraphs[1:], written.subgraphs[1:], strict=True
            )
        )


def test_results_lie_on_operands_with_the_reference_kernels(tmp_path):
    binary = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"}
    unary = {"RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "PRELU"}
    files = [
        elementwise(name, dtype, 2 if name in binary else 1)
        for name in sorted(binary | unary)
        for dtype in ("int8", "float32")
    ]
    judged(tmp_path, files, on_operands=True)
    for file in files:
        _, plan = planned(file, on_operands=True)
        # One row where each result lies on the operand; two where two are there at a time.
        rows = plan.arena_bytes / (-(-517 * (1 if file.tensors[0].dtype == "int8" else 4) // 16) * 16)
        assert rows == (2 if len(file.operators) == 4 else 1)


def test_irregular_networks_need_less_where_results_lie_on_operands(tmp_path):
    files = [irregular_network(seed) for seed in (0, 1, 3, 5)]
    judged(tmp_path, files, on_operands=True)
    for file in files:
        assert planned(file, on_operands=True)[1].arena_bytes <= planned(file)[1].arena_bytes


@pytest.mark.slow
def test_smallest_arenas_of_further_networks(tmp_path):
    judged(tmp_path, [irregular_network(seed) for seed in range(100, 112)], smallest=True)


def test_a_reshape_needs_no_second_buffer_where_the_plan_says_so():
    _, plan = planned(reshaped())
    # The interpreter gives the reshaped tensor bytes of its own: four of them in its plan, three in ours.
    size = 2 * 32 * 32 * 4
    assert plan.arena_bytes == 3 * size


def test_a_file_without_anything_to_gain_stays_as_it_is(tmp_path):
    file = chain(4, (1, 64))
    source, plan = planned(file)
    assert (plan.offsets, plan.order) == (None, (0, 1, 2, 3))
    path, _ = write_planned(source, plan, tmp_path, "net")
    assert path.read_bytes() == file.to_bytes()


def test_offsets_of_the_file_are_the_baseline():
    source, plan = planned(irregular_network(0))
    assert plan.offsets is not None
    requests = arena_requests(source, plan.order, plan.offsets)
    assert greedy_arena(requests) == plan.arena_bytes


def test_greedy_places_the_largest_first_in_the_lowest_gap_that_is_wide_enough():
    given = [Request(32, 0, 3, 0), Request(16, 0, 3, 64)]
    assert greedy_arena([*given, Request(32, 1, 1)]) == 80  # between the two
    assert greedy_arena([*given, Request(48, 1, 1)]) == 128  # above both
    assert greedy_arena([*given, Request(48, 4, 5)]) == 80  # at 0, once they are gone
    assert greedy_arena([]) == 0


def test_the_header_compiles_and_says_the_sum(tmp_path):
    source, plan = planned(irregular_network(0))
    header = header_text(source, plan, "1 net-v2")
    assert f"#define MODEL_1_NET_V2_PLANNED_BYTES {plan.arena_bytes} " in header
    (tmp_path / "net.h").write_text(header)
    main = tmp_path / "main.c"
    main.write_text(
        '#include "net.h"\n#include <stdint.h>\n'
        "static uint8_t arena[MODEL_1_NET_V2_ARENA_BYTES];\n"
        f'_Static_assert(sizeof arena == {plan.total_bytes}, "sum");\n'
        "int main(void) { return arena[0]; }\n"
    )
    subprocess.run(["cc", "-Wall", "-Werror", "-fsyntax-only", main], check=True)
