"""Specifications, the catalogue and laziness: nothing here builds a model."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide import zoo
from neaptide.errors import MissingExtra, TargetError, UsageError
from neaptide.zoo.catalogue import MODELS
from neaptide.zoo.model import COMMON_DEFAULTS
from support.together import together


@pytest.mark.parametrize("code", ["zoo.names()", "zoo.factory('gpt2@small,bf16', batch=2)"])
def test_no_framework_is_imported_before_a_factory_is_called(code):
    check = (
        f"import sys; from neaptide import zoo; {code}; "
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_size_defaults_to_tiny_and_options_win_over_the_size():
    _, tiny = zoo.parse_spec("gpt2")
    assert tiny["layers"] == MODELS["gpt2"].sizes["tiny"]["layers"]
    _, parameters = zoo.parse_spec("gpt2@small, bf16, batch=3, lr=0.5, seed=0")
    assert (parameters["batch"], parameters["lr"], parameters["precision"]) == (3, 0.5, "bf16")
    assert zoo.parse_spec("resnet50,layers=2-1-1")[1]["layers"] == (2, 1, 1)
    assert zoo.parse_spec("unetpp,deep_supervision=true")[1]["deep_supervision"] is True


@given(
    name=st.sampled_from(zoo.names()),
    size=st.sampled_from(zoo.SIZES),
    batch=st.integers(1, 10**6),
    data=st.data(),
)
def test_a_written_option_is_read_back(name, size, batch, data):
    precision = data.draw(st.sampled_from(zoo.PRECISIONS))
    model, parameters = zoo.parse_spec(f"{name}@{size},batch={batch},{precision}")
    assert model is zoo.get(name)
    assert parameters == {**COMMON_DEFAULTS, **model.sizes[size], "batch": batch, "precision": precision}


@pytest.mark.parametrize("spec", ["gpt9", "", "@small", "GPT2"])
def test_unknown_model_lists_the_names(spec):
    with pytest.raises(TargetError) as error:
        zoo.factory(spec)
    assert all(name in str(error.value) for name in zoo.names())


@together(
    ("option", "message"),
    [
        ("fp8", "neither key=value nor a precision"),
        ("precision=fp8", "unknown precision"),
        ("depth=3", "has no option 'depth'.*\n.*layers"),
        ("batch=x", "cannot be read.*\n.*batch=2"),
        ("batch=0", "must be at least 1"),
        ("batch=", "cannot be read"),
        ("dropout=1.5", "below 1"),
        ("lr=fast", "cannot be read"),
    ],
)
def test_bad_option_is_refused(option, message):
    with pytest.raises(UsageError, match=message):
        zoo.factory(f"gpt2@tiny,{option}")


@pytest.mark.parametrize(("name", "package"), [("gpt2", "transformers"), ("mlp", "torch")])
def test_missing_package_names_the_extra(monkeypatch, name, package):
    for module in (MODELS[name].build.args[0], "training"):
        monkeypatch.delitem(sys.modules, f"neaptide.zoo.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r'pip install "torch>=2.11" "transformers>=5"'):
        zoo.factory(name)()
