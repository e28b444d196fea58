"""What ordering again after an edit is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSettings:
    """Settings of settling an order and of ordering an edited problem again.

    `benchmarks/ablation.py order_edit_settings` measures what half and twice of each number cost and win.

    Attributes:
        most_ops: of the stretch that is solved; beyond that its width is more than a leaf can take.
        window_states: of the exact search of that stretch, in each direction; of windows elsewhere half as many: the old order
            was good there already.
        proof_states: of a search for a proof, in each direction; a proof that is kept for later edits may take three times as
            many.
        decisions: whether there is an order below the peak; then the level is raised from the bound.
    """

    most_ops: int = 200
    window_states: int = 40
    proof_states: int = 20_000
    decisions: int = 3


SETTINGS: Final = EditSettings()
