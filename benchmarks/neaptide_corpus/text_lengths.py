"""Lengths of texts as they come in instruction tuning: most are short, a few are ten times as long.

CodeAlpaca-20K (Chaudhary, 2023), on which BladeDISC++ was evaluated (arXiv 2412.16985, 3), has texts of about 100 to 3,000
characters. Nothing else of it is taken: lengths are drawn from a log-normal distribution over that range.
"""

from __future__ import annotations

import math
import random
from typing import Final

SHORTEST: Final = 100  # characters
LONGEST: Final = 3000
_MEDIAN: Final = 450.0
_SPREAD: Final = 0.75  # of the logarithm
CHARACTERS_PER_TOKEN: Final = 4  # of English text and code, about


def text_lengths(count: int, seed: int) -> list[int]:
    """Characters of so many texts, each between `SHORTEST` and `LONGEST`. The same for the same seed, on every machine.

    Args:
        count: of texts.
        seed: of the random numbers.
    """
    chance = random.Random(seed)
    found: list[int] = []
    while len(found) < count:
        length = round(math.exp(chance.gauss(math.log(_MEDIAN), _SPREAD)))
        if SHORTEST <= length <= LONGEST:
            found.append(length)
    return found


def batches_of_tokens(batches: int, samples: int, seed: int, *, scale: int = 1) -> list[list[int]]:
    """Tokens of the samples of each batch; samples are drawn at random, as a data loader does that shuffles.

    Args:
        batches: how many.
        samples: of a batch.
        seed: of the random numbers.
        scale: texts are this many times shorter, for a model that is smaller.
    """
    lengths = text_lengths(batches * samples, seed)
    tokens = [max(2, length // (CHARACTERS_PER_TOKEN * scale)) for length in lengths]
    return [tokens[start : start + samples] for start in range(0, len(tokens), samples)]
