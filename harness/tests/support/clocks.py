"""A clock that stands still, and what pytest-benchmark does, for tests of timing."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Stands still but for what is said to have passed."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        """A call that takes so long, another time each round."""
        each = iter(seconds)

        def call() -> None:
            self.now += next(each)

        return call


class Pedantic:
    """What pytest-benchmark's fixture does with a set-up before each round."""

    def pedantic(self, target, setup, rounds, iterations):
        for _ in range(rounds):
            setup()
            target()
