"""Every operation of the zoo and of the programs has a row of axes, or a reason why it has none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from neaptide import zoo
from neaptide.analysis.axes.whole_graph import operations_without_axes
from neaptide.errors import NeaptideError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from programs.catalogue import FAMILIES, family
from programs.check import Outcome, outcome_of

NOT_OURS = "not in the op table, and a barrier along every axis"
IN_PLACE_VIEW = "changes the shape of its operand itself"
LIES_ANYWHERE = "which elements it shows follows from strides"
RAGGED = "parts of its operands belong together by numbers in another operand"
WITHOUT_ROWS = {
    "programs.swish.default": NOT_OURS,
    "programs.swish_backward.default": NOT_OURS,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": NOT_OURS,
    "aten.fake_quantize_per_channel_affine_cachemask.default": NOT_OURS,
    "aten._has_same_storage_numel.default": NOT_OURS,
    "aten.squeeze_.dim": IN_PLACE_VIEW,
    "aten.transpose_.default": IN_PLACE_VIEW,
    "aten.unsqueeze_.default": IN_PLACE_VIEW,
    "aten.squeeze.default": "a part of one element would lose its dim",
    "aten.as_strided.default": LIES_ANYWHERE,
    "aten.as_strided_.default": LIES_ANYWHERE,
    "aten._embedding_bag.default": RAGGED,
    "aten._embedding_bag_backward.default": RAGGED,
    "aten._grouped_mm.default": RAGGED,
    "aten.index_reduce.default": RAGGED,
    "aten.segment_reduce.default": RAGGED,
    "aten._segment_reduce_backward.default": RAGGED,
    "aten._trilinear.default": "three operands whose dims lists of numbers put together",
    "aten.diagonal_scatter.default": "of one program, on a square matrix without a batch",
    "aten._efficientzerotensor.default": "a tensor without bytes",
    "aten._foreach_lerp_.Scalar": "works on lists of weights",
    "aten._linalg_check_errors.default": "asks the host",
    "aten.embedding_renorm_.default": "overwrites the rows of a table that numbers in another operand name",
    "aten.histc.default": "counts over the whole tensor",
    "aten.rrelu_with_noise_functional.default": "draws random numbers for the whole",
    "aten._ctc_loss.default": RAGGED,
    "aten._ctc_loss_backward.default": RAGGED,
    "aten._is_all_true.default": "says of a whole tensor whether all is true",
    "prims.add.default": NOT_OURS,
    "neaptide.constant": "a tensor of the capture, which no operand has an axis for",
    "neaptide.get_rng_state.default": "the state of a generator",
    "neaptide.set_rng_state.default": "the state of a generator",
}


def missing_in(captured: CapturedStep) -> set[str]:
    return {op for program in captured.programs for op in operations_without_axes(program.graph, registry())}


def missing_in_model(spec: str) -> set[str]:
    step, batch = zoo.factory(spec, device="meta")()
    return missing_in(capture(step, (batch,)))


def missing_in_program(factory: Callable[[], tuple[Callable[..., Any], Any]]) -> set[str] | None:
    """None where the program is refused with line, reason and fix: it has no graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the program's author is warned of is not checked here
        step, batch = factory()
        try:
            captured = capture(step, (batch,))
        except NeaptideError as error:
            if outcome_of(error) is not Outcome.REFUSED:
                raise
            return None
    return missing_in(captured)


@pytest.mark.parametrize("name", ["mlp", "lstm", "unet"])
def test_every_operation_of_a_tiny_model_has_a_row(name):
    assert missing_in_model(f"{name}@tiny") == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("name", zoo.names())
def test_every_operation_of_the_zoo_has_a_row(name, size, precision):
    assert missing_in_model(f"{name}@{size},{precision}") == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_operation_of_the_programs_has_a_row_or_a_reason():
    found = [missing_in_program(program.factory) for module in FAMILIES for program in family(module)]
    graphs = [missing for missing in found if missing is not None]
    assert len(graphs) > 0.9 * len(found)
    assert set().union(*graphs) == set(WITHOUT_ROWS)
