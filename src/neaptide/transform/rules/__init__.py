"""The rules by which graphs are rewritten, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from neaptide.errors import UsageError
from neaptide.transform.rewrite import Rewrite, Rule
from neaptide.transform.rules.accumulate_in_gemm import ACCUMULATE_IN_GEMM
from neaptide.transform.rules.common_subexpressions import COMMON_SUBEXPRESSIONS
from neaptide.transform.rules.concat_before_convolution import CONCAT_BEFORE_CONVOLUTION
from neaptide.transform.rules.fission import FISSION, FISSION_BY_SHAPE, WINDOWS
from neaptide.transform.rules.fusion import FUSION
from neaptide.transform.rules.in_place import IN_PLACE
from neaptide.transform.rules.mean_to_sum import MEAN_TO_SUM
from neaptide.transform.rules.redundant_copies import REDUNDANT_COPIES
from neaptide.transform.rules.rematerialisation import REMATERIALISATION
from neaptide.transform.rules.split_convolution_backward import SPLIT_CONVOLUTION_BACKWARD
from neaptide.transform.rules.split_dropout import SPLIT_DROPOUT

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            REDUNDANT_COPIES,
            SPLIT_DROPOUT,
            COMMON_SUBEXPRESSIONS,
            FISSION,
            FISSION_BY_SHAPE,
            SPLIT_CONVOLUTION_BACKWARD,
            IN_PLACE,
            REMATERIALISATION,
            MEAN_TO_SUM,
            CONCAT_BEFORE_CONVOLUTION,
            ACCUMULATE_IN_GEMM,
            WINDOWS,
            FUSION,
        )
    }
)
"""Every rule that a plan may name."""


def check_rules(names: Iterable[str]) -> None:
    """Refuse names of rules that there are not, and of those of which not all places may be taken together."""
    together = ", ".join(name for name, rule in RULES.items() if not rule.are_alternatives)
    for name in names:
        if name not in RULES:
            raise UsageError(f"no rule is called {name!r}", next_step=f"choose one of {together}")
        if RULES[name].are_alternatives:
            raise UsageError(
                f"{name} does not say which of its places to take: they are alternatives",
                next_step='let prices choose among them (numerics="close"), or hand over a Rewrite for one place',
            )


def described_rewrites(rewrites: Iterable[Rewrite]) -> tuple[str, ...]:
    """What some rewrites do, a line for each rule: "common subexpressions run once (common_subexpressions), at 4 places"."""
    lines = []
    places: Counter[tuple[str, bool]] = Counter()
    inside: Counter[tuple[str, bool]] = Counter()
    for made in rewrites:
        kind = made.rule, made.keeps_bits
        count = len(made.nodes) if made.rule in RULES and RULES[made.rule].each_node else 1
        places[kind] += count
        inside[kind] += count if made.within else 0
    for (name, keeps_bits), count in places.items():
        summary = RULES[name].summary if name in RULES else "unknown to this version of neaptide"
        where = "at 1 place" if count == 1 else f"at {count} places"
        if within := inside[name, keeps_bits]:
            where += f", {within} of them within a loop"
        bits = "every bit is kept" if keeps_bits else "sums are taken in another order"
        lines.append(f"{summary} ({name}), {where}; {bits}")
    return tuple(lines)
