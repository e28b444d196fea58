"""Model files of the corpus: legal, run by ONNX Runtime, and as large as published."""

from types import MappingProxyType

import pytest

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import best_order
from support.together import together

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from neaptide_corpus.onnx_models import catalogue, cells  # noqa: E402
from neaptide_corpus.onnx_models.feeds import largest_error, random_feeds  # noqa: E402

KIB = 1024
# Peaks in file order and in the best order.
PEAKS_KIB = MappingProxyType({"darts": (768, 608), "randwire": (1280, 896)})


def run(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, random_feeds(model))


@together("name", catalogue.IRREGULAR)
def test_irregular_networks_pass_the_full_checker_and_run(name):
    model, form = cells.build(name)
    onnx.checker.check_model(model, full_check=True)
    (made,) = run(model)
    assert made.shape == (1, 10)
    assert made.any()
    assert len(form["ops"]) == len(model.graph.node) - 1  # all but the flattening, which is a view


@together("name", PEAKS_KIB)
def test_peaks_of_irregular_networks_are_those_known(name):
    problem = from_mapping(cells.build(name)[1])
    found = best_order(problem)
    peaks = [
        evaluate_order(problem, order).peak_bytes for order in (range(problem.op_count), found.value.order)
    ]
    assert peaks == [size * KIB for size in PEAKS_KIB[name]]
    assert found.value.order_lower_bound_bytes == peaks[1]


def test_a_model_is_written_once_and_another_name_is_an_error(tmp_path):
    path = catalogue.path("darts", tmp_path)
    written = path.stat().st_mtime_ns
    assert catalogue.path("darts", tmp_path).stat().st_mtime_ns == written
    assert [p.name for p in tmp_path.iterdir()] == ["darts.onnx"]
    with pytest.raises(KeyError):
        catalogue.path("dart", tmp_path)


def test_the_largest_error_is_relative_and_other_shapes_are_refused():
    numpy = pytest.importorskip("numpy")
    true = numpy.array([0.0, 100.0], numpy.float32)
    assert largest_error([true + numpy.float32(1)], [true]) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="instead of"):
        largest_error([true[:1]], [true])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in catalogue.NAMES if n not in catalogue.IRREGULAR])
def test_every_other_model_passes_the_full_checker_and_runs(name, tmp_path_factory):
    model = catalogue.load(name, tmp_path_factory.getbasetemp() / "models")
    onnx.checker.check_model(model, full_check=True)
    assert all(made.size for made in run(model))
