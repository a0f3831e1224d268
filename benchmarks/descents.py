"""Prepares a descent to be timed, for one choice of every setting that affects its speed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.benchmarks import limits, operations, prompts
from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.inversion import Rule, Target, start
from assay.harness.inversion.batch import Batch
from assay.harness.inversion.descent import choose_runner, rows_that_fit
from assay.harness.models.loading import loading
from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject

ROW_STEPS = 320
"""Rows times steps of one timed call; never fewer than `LEAST_STEPS` steps."""

LEAST_STEPS = 5

RATE = 0.1
"""Learning rate in units of `start.unit`, at which half precision descends too."""


@dataclass(frozen=True)
class Case:
    """Settings of a timed descent.

    ``rows`` prompts of ``tokens`` tokens; ``depth`` in blocks (0: all of them); ``through`` as in
    `Target`; an ``arithmetic`` of `limits` (empty: the model's own dtype); a ``runner`` of
    `harness.inversion.batch.RUNNERS` (empty: the usual one of the device).
    """

    rows: int = 16
    tokens: int = prompts.TOKENS
    depth: int = 0
    through: str = "block"
    arithmetic: str = ""
    runner: str = ""

    @property
    def steps(self) -> int:
        """Steps of one call."""
        return max(LEAST_STEPS, ROW_STEPS // self.rows)

    def computed_in(self, subject: Subject) -> str:
        """The arithmetic by name."""
        return self.arithmetic or str(subject.dtype).removeprefix("torch.")

    def target(self, subject: Subject) -> Target:
        """The output to descend to."""
        return Target(self.depth or subject.layers, self.through)


@dataclass(frozen=True)
class Ready:
    """A descent that can be called: one call does all its steps from the start.

    It was set up or recorded before, which took ``set_up`` seconds.
    """

    case: Case
    call: Callable[[], None]
    batch: Batch
    token_steps: int
    flops: int
    set_up: float

    @property
    def descended(self) -> bool:
        """Whether the last loss of every row is below its first."""
        losses = self.batch.losses[: self.case.steps]
        return bool((losses[-1] < losses[0]).all())

    def seconds_per_prompt(self, seconds: float) -> float:
        """Seconds of one step for one prompt."""
        return seconds / self.case.rows / self.case.steps


@contextmanager
def ready(model: Subject, case: Case, stopwatch: Stopwatch | None = None) -> Iterator[Ready]:
    """The descent of a case; products within it use the case's arithmetic.

    Raises `BadInput` where the machine has no such arithmetic or the model no such output.
    """
    limits.check(case.computed_in(model), model.device)
    runner = choose_runner(case.runner, model.device)
    with limits.computing_in(case.computed_in(model)) as dtype:
        subject = model if model.dtype == dtype else cast(model, dtype)
        target, rule = case.target(subject), Rule(steps=case.steps)
        target.check(subject)
        ids = prompts.fixed(subject, case.rows, case.tokens)
        goal = target.output(subject, ids).detach()
        first = begun(subject, ids)
        rate = RATE * start.unit(subject, target, goal[:2], first[:2], rule)
        rates = torch.full((case.rows,), rate, device=subject.device)

        batch = Batch(subject, target, rule, goal, first, rates, runner)
        token_steps = case.rows * case.tokens * case.steps
        per_token = operations.of_token_step(subject, target, case.tokens)
        advance = batch.stepper()
        set_up = (stopwatch or Stopwatch()).lap(advance).seconds

        def call() -> None:
            batch.rewind()
            for _ in range(case.steps):
                advance()

        yield Ready(case, call, batch, token_steps, token_steps * per_token, set_up)


def begun(subject: Subject, ids: Tensor) -> Tensor:
    """Starts of descents, the same in every run and every arithmetic: [rows, n, d]."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(*ids.shape, subject.hidden, generator=generator)
    return start.scaled(subject, normal.to(subject.device))


def cast(model: Subject, dtype: torch.dtype) -> Subject:
    """A copy of the model in ``dtype``, cast like one that is loaded in it."""
    name = f"{model.name} in {str(dtype).removeprefix('torch.')}"
    model_copy = copy.deepcopy(model.model)
    loaded = loading.adopt(name, model_copy, model.tokenizer, dtype=dtype, device=model.device)
    return loaded.subject


def fits(model: Subject, case: Case) -> int:
    """The rows that fit into one pass with the memory that is free now."""
    return rows_that_fit(model, case.target(model), case.tokens)


def largest(run: Callable[[int], object], most: int) -> int:
    """The most rows up to ``most`` that ``run`` has memory for; 0 if not even one.

    It doubles until memory runs out or ``most`` is passed, then bisects to within a quarter,
    without a crash.
    """
    good, bad = 0, most + 1
    rows = 1
    while rows < bad:
        if _works(run, rows):
            good, rows = rows, rows * 2
        else:
            bad = rows
    while bad - good > max(1, good // 4):
        middle = (good + bad) // 2
        if _works(run, middle):
            good = middle
        else:
            bad = middle
    return good


def _works(run: Callable[[int], object], rows: int) -> bool:
    try:
        run(rows)
    except (RuntimeError, MemoryError) as error:
        if not memory.lacking(error):
            raise
        return False
    return True
