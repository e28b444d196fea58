"""Tests of dims that vary are for versions of torch that can trace them."""

from __future__ import annotations

import pytest

from neaptide.frontends.recording._torch_sizes import keeps_sizes

needs_varying_dims = pytest.mark.skipif(
    not keeps_sizes(), reason="this torch takes the size of the example for some sizes that vary"
)
