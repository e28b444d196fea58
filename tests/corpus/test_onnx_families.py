from __future__ import annotations

import numpy as np
import pytest

from support.together import together

pytest.importorskip("onnx")

from neaptide_corpus.onnx_families import FAMILIES, family_model, family_models


@together("family", FAMILIES)
def test_a_family_and_a_seed_decide_a_model_to_the_bit(family):
    first, again = (family_model(family, 3).SerializeToString(deterministic=True) for _ in range(2))
    assert first == again
    assert first != family_model(family, 4).SerializeToString(deterministic=True)


def test_there_are_140_models_of_seven_families_small_enough_to_be_searched():
    models = family_models()
    assert len(models) == 140
    assert len({model.graph.name for model in models}) == 140
    assert max(len(model.graph.node) for model in models) <= 60


@together("family", FAMILIES)
def test_onnx_runtime_runs_them(family):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(family_model(family, 0).SerializeToString())
    (given,) = session.get_inputs()
    (result,) = session.run(None, {given.name: np.ones(given.shape, np.float32)})
    assert np.isfinite(result).all()
    assert result.std() > 0
