"""An interrupt between two lines of code, whose traceback has an entry without a number."""

from __future__ import annotations

import pytest

from assay.harness.plugin.interrupts import Interrupts


class WithoutNumber:
    """An entry of a traceback, as pytest wraps it."""

    @property
    def lineno(self) -> int:
        raise TypeError("unsupported operand type(s) for -: 'NoneType' and 'int'")


def test_entries_that_pytest_cannot_show_are_left_out() -> None:
    with pytest.raises(KeyboardInterrupt) as interrupt:
        raise KeyboardInterrupt
    shown = list(interrupt.traceback)
    interrupt.traceback = type(interrupt.traceback)([*shown, WithoutNumber()])
    Interrupts.pytest_keyboard_interrupt(object.__new__(Interrupts), interrupt)
    assert list(interrupt.traceback) == shown
