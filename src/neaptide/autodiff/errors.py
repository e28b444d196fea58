"""Why a model has no gradient that can be written."""

from __future__ import annotations

from neaptide.errors import NeaptideError


class GradientError(NeaptideError):
    """A model cannot be differentiated: an operator without a rule, or a shape that a rule needs and does not find."""

    exit_code = 4
