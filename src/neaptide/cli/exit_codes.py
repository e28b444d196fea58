"""Exit codes, the same for every command."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
BUG: Final = 1
USAGE: Final = 2
OVER_BUDGET: Final = 3
NOT_SUPPORTED: Final = 4
NOT_VERIFIED: Final = 5
INTERRUPTED: Final = 130

MEANINGS: Final[dict[int, str]] = {
    DONE: "done, and within the budget",
    BUG: "a bug of neaptide; -v shows the traceback",
    USAGE: "a mistake in the command, its target or the configuration",
    OVER_BUDGET: "the budget or the capacity was not reached; the smallest peak is printed, -o still writes the best plan",
    NOT_SUPPORTED: "the program, the plan or the installation is not supported",
    NOT_VERIFIED: "the numbers of the plan differ from eager",
    INTERRUPTED: "interrupted before there was a result",
}


def table() -> str:
    """The codes as lines of text, for `--help`."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
