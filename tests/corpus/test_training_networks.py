"""Training steps: every weight gets one gradient and one update, and nothing is made for nobody."""

import pytest

from neaptide.schedule.order.neutral import from_mapping
from neaptide_corpus.conv_forms import ConvForm
from neaptide_corpus.training_networks import (
    TRAINING_STEPS,
    Update,
    darts_cells,
    hrnet_w18_small,
    random_wiring,
    training_step,
    vgg16,
)
from order_play import peak_bytes

MIB = 2**20
SMALL = {
    "darts": darts_cells(8, 1, 4),
    "hrnet": hrnet_w18_small(64),
    "vgg16": vgg16(32),
    "wired": random_wiring(64),
}


def kinds(form):
    return [op["id"].rpartition("_")[0] for op in form["ops"]]


@pytest.mark.parametrize("update", Update)
@pytest.mark.parametrize("name", SMALL)
def test_steps_are_complete(name, update):
    form = training_step(SMALL[name], batch=2, update=update)
    from_mapping(form)
    read = {s for op in form["ops"] for s in op["reads"]}
    unread = [s["id"] for s in form["storages"] if s["id"] not in read and not s.get("output")]
    assert not unread
    net = ConvForm()
    SMALL[name](net)
    norms = 0 if name == "vgg16" else sum(layer == "batch_norm" for layer in kinds(form))
    weights = sum(bool(layer.parameter_bytes) for layer in net.layers if layer.kind != "batch_norm") + norms
    outputs = sum(s.get("output", False) for s in form["storages"])
    assert outputs == 1 + (0 if update is Update.IN_PLACE else weights)
    assert kinds(form).count("sgd") == (weights if update is Update.IN_PLACE else 0)


def test_vgg16_holds_what_its_weights_demand():
    # New weights, 527.8 MiB, beside the largest scaled gradient, 392 MiB: the peak of a traced step with SGD.
    form = training_step(vgg16(224), batch=1, update=Update.FUNCTIONAL)
    assert round(peak_bytes(form) / MIB, 1) == 919.8
    weights = 138_357_544
    new = sum(s["nbytes"] for s in form["storages"] if s.get("output"))
    assert new == 4 * weights + 4


def test_hrnet_has_the_published_number_of_weights():
    form = training_step(hrnet_w18_small(64), batch=1, update=Update.NONE)
    weights = sum(s["nbytes"] for s in form["storages"] if s.get("output")) // 4 - 1
    assert weights == 13_187_464 - 3840  # timm's head convolutions have biases in front of their batch norms


@pytest.mark.parametrize("name", TRAINING_STEPS)
def test_names_say_batch_and_side(name):
    network, batch = TRAINING_STEPS[name]
    assert f"_b{batch}_" in name
    net = ConvForm(batch=batch)
    network(net)
    image = net.layers[0].operands[0]
    assert name.endswith(f"_{image.height}")
    assert image.batch == batch
