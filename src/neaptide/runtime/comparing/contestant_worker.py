"""The process that runs one of the programs that are compared: reads what to do from stdin and answers on stdout.

Started as `python -m neaptide.runtime.comparing.contestant_worker`, so that nothing of the script that compares is run again. It ends
when stdin does, even in the middle of a step.
"""

from __future__ import annotations

import traceback
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neaptide.runtime.comparing.contestant_process import Wanted
    from neaptide.runtime.comparing.contestants import Contestant


def made(wanted: Wanted) -> Contestant:
    """The contestant, on fresh objects."""
    import torch

    from neaptide.errors import PlanMismatch
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.steps.capturing import capture

    torch.set_num_threads(wanted.threads)
    if wanted.planned is None:
        return contestants.eager_contestant(wanted.factory, wanted.seed, wanted.name)
    asked = wanted.captured_for
    step, batch = contestants.build(wanted.factory if asked is None else asked.factory, wanted.seed)
    dynamic = None if asked is None else asked.dynamic
    sent = wanted.planned
    captured = capture(step, (batch,), name=sent.name, dynamic=dynamic, checkpoints=sent.checkpoints)
    variant = sent.on(captured)
    if variant is None:
        raise PlanMismatch(
            f"the program {wanted.name!r} is of another step in a process of its own",
            why="the factory made another step there, with the same seed",
            next_step="let the factory depend on nothing but the random seed",
        )
    return contestants.planned_contestant(
        wanted.name, wanted.factory, wanted.seed, contestants.rebind(variant)
    )


def _answer(output: IO[bytes], work: Any) -> bool:
    """Write what some work returns, or why it does not; whether it did."""
    from neaptide.errors import NeaptideError
    from neaptide.planner.variants.processes.messages import packed, write
    from neaptide.runtime.comparing.contestant_process import Failed

    try:
        answer, is_done = work(), True
    except NeaptideError as error:
        answer, is_done = error, False
    except BaseException as error:  # noqa: BLE001 - whoever asked raises it; user code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}"
        answer, is_done = Failed(f"{type(error).__name__}: {error}", where), False
    write(output, packed(answer))
    return is_done


def main() -> None:
    """Make a contestant, and do with it what is asked until stdin ends."""
    from neaptide.planner.variants.processes.messages import asked_of_worker, unpacked

    output, blocks = asked_of_worker()
    found: list[Contestant] = []
    if not _answer(output, lambda: found.append(made(unpacked(blocks.get())))):
        return
    while True:
        what, given = unpacked(blocks.get())
        _answer(output, lambda what=what, given=given: getattr(found[0], what)(*given))


if __name__ == "__main__":
    main()
