"""The timer that strikes in the main thread: nested, beside others', and where there is none."""

from __future__ import annotations

import math
import signal
import threading
import time

import pytest

from assay.harness.models.alarm import striking


class Struck(BaseException):
    """What these timers raise."""


def strike(frame):
    raise Struck


def for_ever():
    time.sleep(1e6)


def left():
    return signal.getitimer(signal.ITIMER_REAL)[0], signal.getsignal(signal.SIGALRM)


def test_a_block_that_does_not_end_is_ended_and_nothing_is_left():
    with pytest.raises(Struck), striking(0.05, 0.05, strike):
        for_ever()
    assert left() == (0, signal.SIG_DFL)


def test_it_strikes_again_where_the_first_time_was_of_no_use():
    struck = []

    def swallows():
        for _ in range(3):
            try:
                for_ever()
            except Struck:
                struck.append(1)
        for_ever()

    with pytest.raises(Struck), striking(0.02, 0.02, strike):
        swallows()
    assert len(struck) == 3


def test_a_block_within_another_has_its_own_and_the_other_goes_on():
    struck = []

    def within():
        with striking(0.02, 0.02, strike):
            for_ever()

    def strike_outside(frame):
        struck.append("outer")

    with striking(0.05, 0.05, strike_outside):
        with pytest.raises(Struck):
            within()
        struck.clear()
        while not struck:
            time.sleep(0.01)
    assert left() == (0, signal.SIG_DFL)


def test_what_a_block_does_to_signals_is_undone():
    with striking(60, 60, strike):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.alarm(100)
    assert left() == (0, signal.SIG_DFL)


def test_a_timer_that_somebody_else_has_set_stays():
    alarms = []
    mine = signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with striking(0.01, 0.01, strike):
            while not alarms:
                time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, mine)


def test_a_handler_that_somebody_else_has_set_comes_back():
    def theirs(*_):
        raise AssertionError

    before = signal.signal(signal.SIGALRM, theirs)
    try:
        with pytest.raises(Struck), striking(0.02, 0.02, strike):
            for_ever()
        assert left() == (0, theirs)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("first", [math.inf, 1e30])
def test_no_time_is_no_limit(first):
    with striking(first, first, strike):
        assert left() == (0, signal.SIG_DFL)


def test_another_thread_than_the_main_one_has_none():
    ended = []

    def run():
        with striking(0.01, 0.01, strike):
            ended.append(left()[0])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended == [0]
