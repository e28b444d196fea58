"""Real training steps to plan: `factory("gpt2@small")` returns a function that builds a step and its batch.

>>> from neaptide import zoo
>>> "resnet50" in zoo.names()
True
>>> build = zoo.factory("gpt2@tiny,bf16", batch=2)  # nothing is built yet, no framework is imported

`step, batch = build()` then gives a plain PyTorch training step: forward, loss, backward, optimizer, all
with the flags a user gets by default. The sizes are `tiny` (tests), `small` (a demonstration on one CPU
core) and `paper` (the published configuration; build it with `device="meta"` where memory is short).
Weights are random and the data are made up, both from `seed`; nothing is downloaded.
"""

from neaptide.zoo.model import PRECISIONS, SIZES, Batch, Step, ZooModel
from neaptide.zoo.spec import factory, get, names, parse_spec

__all__ = ["PRECISIONS", "SIZES", "Batch", "Step", "ZooModel", "factory", "get", "names", "parse_spec"]
