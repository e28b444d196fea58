"""How exactly programs are solved and their answers read: one set for all that calls the solver.

HiGHS keeps rows and reduced costs to 1e-7 by default. What is smaller than its errors is read as nothing; what an answer
is used for says how near to the optimum branch and bound has to come.
"""

from __future__ import annotations

from typing import Final

WHOLE_GAP: Final = 1e-4
"""How close to its optimum branch and bound stops where the answer is repaired or carried out anyway, as a share."""
BOUND_GAP: Final = 1e-5
"""The same where the answer counts as a bound; given away there."""
PROOF_GAP: Final = 1e-7
"""The same where the answer counts as an optimum; HiGHS keeps rows to about as much."""
GIVEN_AWAY: Final = 1e-6
"""Taken from what branch and bound has proved of a program whose largest cost is about 1: ten times the solver's error."""
ROUNDING: Final = 1e-9
"""Rounding errors in sums of as many terms as there are rows, as a share of the largest term."""
NOTHING: Final = 1e-6
"""Shares of a variable below this are zero."""
NEARLY: Final = 1e-4
"""Shares this close to whole are whole; rows broken by less than this share of their right side are kept."""
HALF: Final = 0.5
"""A choice in fractions is taken where its share is above this, when it is carried out."""
