"""Passes over models: rules, by name, that change what a model takes at its peak, up or down."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neaptide.transform.passes.batch_norm import CONV_BATCH_NORM
from neaptide.transform.passes.fission import CHANNEL_FISSION, MLP_FISSION, WINDOW_FISSION
from neaptide.transform.passes.join_motion import ELEMENTWISE_BEFORE_CONCAT, POOL_BEFORE_CONCAT
from neaptide.transform.passes.movement import CANCEL_TRANSPOSES, MOVE_CASTS, REMOVE_IDENTITIES
from neaptide.transform.passes.parallel import MERGE_CONVOLUTIONS, MERGE_MATMULS, REMOVE_SPLIT
from neaptide.transform.passes.quantised import INTEGER_MOVES, INTEGER_OPERATORS
from neaptide.transform.passes.swaps import CONV_POOL_SWAP, RELU_POOL_SWAP
from neaptide.transform.rewrite import Rule
from neaptide.transform.rules.common_subexpressions import COMMON_SUBEXPRESSIONS
from neaptide.transform.rules.concat_before_convolution import CONCAT_BEFORE_CONVOLUTION

PASSES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            COMMON_SUBEXPRESSIONS,
            REMOVE_IDENTITIES,
            INTEGER_MOVES,
            INTEGER_OPERATORS,
            CONV_BATCH_NORM,
            ELEMENTWISE_BEFORE_CONCAT,
            POOL_BEFORE_CONCAT,
            CONCAT_BEFORE_CONVOLUTION,
            CONV_POOL_SWAP,
            RELU_POOL_SWAP,
            CANCEL_TRANSPOSES,
            MOVE_CASTS,
            REMOVE_SPLIT,
            MERGE_CONVOLUTIONS,
            MERGE_MATMULS,
            *CHANNEL_FISSION,
            MLP_FISSION,
            *WINDOW_FISSION,
        )
    }
)
"""Every pass, by name. `find` gives all places, those of alternatives too: whoever applies a pass chooses among these."""

BY_NAME_ONLY: Final = frozenset({INTEGER_OPERATORS.name})
"""Passes that no search takes by itself: an output of few bits may be one step from that of the file."""
