"""Batches as the collators of transformers return them, of other lengths at each call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neaptide
from neaptide.errors import CaptureError
from support.step_checks import needs_varying_dims

transformers = pytest.importorskip("transformers")

VOCABULARY, WIDTH = 40, 16


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(batch):
        batch = batch.to("cpu")
        logits = model(batch["input_ids"]) * batch.attention_mask[..., None]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def collated(length, encodings=None):
    ids = torch.randint(VOCABULARY, (2, length), generator=torch.Generator().manual_seed(length))
    content = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.flip(1)}
    return transformers.BatchEncoding(content, encoding=encodings)


@needs_varying_dims
def test_two_plans_serve_encodings_of_all_lengths():
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget="1GiB")
    for length in (9, 24, 17):
        assert torch.equal(fast(collated(length)), eager(collated(length)))
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(own, other)
    assert fast.counts.planned == 3
    assert fast.counts.replans == 1


def test_what_a_tokenizer_knows_of_a_batch_may_be_there_but_not_be_read():
    class Encoding:
        n_sequences = 1
        word_ids = (0, 0, 1)

    step, _ = make()
    fast = neaptide.compile_step(step, budget="1GiB")
    for length in (9, 9):
        fast(collated(length, [Encoding(), Encoding()]))
    assert fast.counts.replans == 0

    def by_words(batch):
        return step(batch) * len(batch.word_ids(0))

    with pytest.raises(CaptureError, match=r"the step reads batch\._encodings, a list"):
        neaptide.compile_step(by_words, budget="1GiB")(collated(9, [Encoding(), Encoding()]))
