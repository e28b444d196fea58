"""The process that plans variants: reads tasks from stdin and writes plans to stdout.

Started as `python -m neaptide.planner.variants.processes.worker`, so that nothing of the script that searches is run
again. It imports no framework. It ends when stdin does, even in the middle of a search; SIGINT asks for the best so far.
"""

from __future__ import annotations

import signal
import threading
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neaptide.planner.variants.processes.messages import Planned
    from neaptide.planner.variants.processes.pool import PricedTask


def _answer(task: PricedTask, interrupt: threading.Event) -> Planned:
    from neaptide.ops import registry
    from neaptide.ops.declared import declare_pure, is_declared
    from neaptide.planner.failed_stages import FailedStageWarning
    from neaptide.planner.garbage import collected_rarely
    from neaptide.planner.variants.processes.messages import Planned

    for name, deterministic in task.declared:
        if not is_declared(name):
            declare_pure(name, deterministic=deterministic)
    with warnings.catch_warnings(record=True) as told, collected_rarely():
        warnings.simplefilter("always")
        try:
            plan, failure = task.planned(registry(), interrupt), ""
        except Exception as error:  # noqa: BLE001 - whoever asked plans it himself, and meets the same
            plan, failure = None, f"{type(error).__name__}: {error}"
    texts = (str(one.message) for one in told if issubclass(one.category, FailedStageWarning))
    return Planned(plan, tuple(texts), failure)


def main() -> None:
    """Plan what is asked for until stdin ends."""
    interrupt = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: interrupt.set())
    from neaptide.planner.variants.processes.messages import asked_of_worker, packed, unpacked, write

    output, blocks = asked_of_worker()
    from neaptide.ops import registry

    registry()
    while True:
        write(output, packed(_answer(unpacked(blocks.get()), interrupt)))


if __name__ == "__main__":
    main()
