"""LSTM language model (Zaremba et al., "Recurrent Neural Network Regularization", 2014), with `nn.LSTM`.

`seq` is the unroll length. Each step starts from a zero state.
"""

from __future__ import annotations

from torch import Tensor, nn

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    construction,
    make_optimizer,
    make_step,
    prepared,
    random_integers,
)


class LSTMLanguageModel(nn.Module):
    """Embedding, stacked LSTM with dropout around each layer, linear decoder."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.dropout = nn.Dropout(dropout)
        # nn.LSTM applies dropout between layers only, and warns where there is nothing between.
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout if layers > 1 else 0.0)
        self.decoder = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of shape (seq, batch, vocab) for tokens of shape (seq, batch)."""
        hidden, _ = self.lstm(self.dropout(self.embedding(tokens)))
        scores: Tensor = self.decoder(self.dropout(hidden))
        return scores


def next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of the next token."""
    return nn.functional.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


def build(
    *,
    layers: int,
    width: int,
    vocab: int,
    dropout: float,
    batch: int,
    seq: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of SGD with momentum; two layers of 1500 units, unrolled 35 steps, is the large PTB model."""
    with construction(seed, device):
        model = LSTMLanguageModel(vocab, width, layers, dropout)
    prepared(model, device, precision)
    optimizer = make_optimizer("sgd", model, lr)
    data = {
        "tokens": random_integers(vocab, (seq, batch), device),
        "targets": random_integers(vocab, (seq, batch), device),
    }
    return make_step(model, optimizer, next_token_loss, device, precision), data
