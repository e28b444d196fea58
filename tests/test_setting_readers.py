"""How settings are read that have a form of their own."""

from __future__ import annotations

import pytest

from neaptide.errors import UsageError
from neaptide.settings import parse_dims
from support.together import together


@together(
    ("texts", "dims"),
    [
        (["batch:0=2..64"], {"batch": {0: (2, 64)}}),
        (["batch:0=2..64,1=16..4096"], {"batch": {0: (2, 64), 1: (16, 4096)}}),
        (["batch:0=2..64", "1=16.."], {"batch": {0: (2, 64), 1: (16, None)}}),
        (["batch.x: 0 = 2 .. 64", "batch.y:1=3..5"], {"batch.x": {0: (2, 64)}, "batch.y": {1: (3, 5)}}),
    ],
)
def test_dims_that_vary(texts, dims):
    assert parse_dims(texts) == dims


@together("text", ["batch", "0=2..64", "batch:0=2", "batch:x=2..3", "batch:0=-2..3", "batch:"])
def test_what_names_no_dims_is_refused(text):
    with pytest.raises(UsageError, match="names no dim"):
        parse_dims([text])
