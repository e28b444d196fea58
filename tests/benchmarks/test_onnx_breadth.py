"""Models of the corpus are planned, written, checked and run; the planned file computes the same."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_breadth
from neaptide_corpus.onnx_models import catalogue
from support.together import together

QUICK = {"light_squeezenet": "none", "amoebanet": "none", "randwire_small": "windows_2"}


@together("name", QUICK)
def test_a_planned_model_computes_the_same(name, tmp_path):
    row = {"case": name, **onnx_breadth.look(catalogue.path(name, tmp_path), [QUICK[name]])}
    assert onnx_breadth.is_right(row)
    assert row["lower_bound_bytes"] <= row["peak_bytes"]
    assert row["order_bytes"] <= row["baseline_bytes"]
    assert not row["unknown_operators"]


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_model_of_the_corpus_is_planned_and_computes_the_same(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "onnx_models"
    packed = name not in catalogue.QUANTIZED
    row = {"case": name, **onnx_breadth.look(catalogue.path(name, folder), ["learned"], packed=packed)}
    assert onnx_breadth.is_right(row)
    assert row["lower_bound_bytes"] <= row["peak_bytes"] <= row["order_bytes"] <= row["baseline_bytes"]
