"""Parts of a search that are cut, and calls that are left to themselves; nothing here depends on how fast they are."""

import gc
import signal
import threading

import pytest

from neaptide import interruption
from neaptide.cli.process.interrupts import asking_before_aborting, handled, has_heard
from neaptide.interruption import Cut, Part, beside, beyond_search, cutting, has_left_calls, is_in_part
from neaptide.planner.failed_stages import Stage

ANSWER = 42


def part(work, otherwise):
    with Part():
        return work()
    return otherwise()


def attempt(name, work, otherwise, **options):
    with Stage(name, **options):
        return work()
    return otherwise()


def cut_here():
    """What a signal handler does."""
    assert is_in_part()
    raise Cut


@pytest.fixture
def asked():
    event = threading.Event()
    with cutting(event):
        yield event


def test_a_part_that_is_cut_is_done_without(asked):
    assert part(cut_here, lambda: ANSWER) == ANSWER
    assert not is_in_part()


def test_what_holds_the_best_answer_is_not_cut(asked):
    def work():
        assert not is_in_part()
        return attempt("the inner stage", cut_here, lambda: ANSWER)

    assert attempt("the outer stage", work, lambda: 0, can_be_cut=False) == ANSWER


def test_a_failure_passes_through(asked):
    def fails():
        raise ValueError("broken")

    for way in (part, beside):
        with pytest.raises(ValueError, match="broken"):
            way(fails, lambda: ANSWER)
    assert not is_in_part()


def test_a_call_beside_gives_its_result_in_one_thread_for_all(asked):
    threads = {beside(threading.current_thread, lambda: None) for _ in range(3)}
    assert len(threads) == 1
    assert threads != {threading.main_thread()}
    asked.set()
    # A search that is asked to end still takes what is there at once, or does without: both are answers.
    assert beside(lambda: ANSWER, lambda: 0) in {ANSWER, 0}


def test_a_call_that_does_not_end_is_left(asked, monkeypatch):
    monkeypatch.setattr(interruption, "_left_calls", 0)
    leave, begun = threading.Event(), threading.Event()

    def stuck():
        begun.set()
        asked.set()
        return leave.wait(60)

    assert not has_left_calls()
    assert beside(stuck, lambda: ANSWER) == ANSWER
    assert begun.is_set()
    assert has_left_calls()
    leave.set()
    assert beside(lambda: ANSWER, lambda: 0) in {ANSWER, 0}  # in a new thread


def test_an_answer_at_hand_is_kept(asked):
    found = []

    def work():
        found.append(interruption.is_kept())
        return attempt("the inner stage", lambda: found.append(interruption.is_kept()), lambda: None)

    attempt("the outer stage", work, lambda: None, can_be_cut=False)
    assert found == [True, True]
    assert not interruption.is_kept()


def test_a_search_is_asked_and_its_answer_made_without_collections(capfd):
    with handled(), asking_before_aborting() as interrupt:
        assert not interrupt.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.is_set()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert has_heard()
    assert "finishing with the best found so far" in capfd.readouterr().err


def test_behind_the_search_there_is_nothing_to_finish_with(capfd):
    with handled(), asking_before_aborting() as interrupt:
        assert not interrupt.is_set()
        with beyond_search(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert not interrupt.is_set()
    assert capfd.readouterr().err == ""


def test_the_innermost_part_is_cut(asked):
    assert part(lambda: (part(cut_here, lambda: 1), is_in_part()), lambda: (0, False)) == (1, True)


def test_another_thread_is_left_alone(asked):
    found = []

    def work():
        found.append(beside(threading.current_thread, lambda: None))
        found.append(part(is_in_part, lambda: None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [thread, False]
