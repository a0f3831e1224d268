"""Recovers one prompt after another from a model's output, and shows how."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from assay.harness.cli.recovery import DescentStep, Recovery
from assay.harness.cli.showing import PromptDisplay
from assay.harness.models import memory
from assay.harness.models.subject import Subject
from assay.harness.operations import inversion
from assay.harness.operations.inversion import Target
from assay.harness.operations.inversion.descent import check_target
from assay.harness.operations.inversion.rule import Rule
from assay.harness.operations.inversion.search import SearchResult
from assay.harness.results.errors import BadInput, brief

SHOWN = (0, 20, 40, 45, 50, 60, 80, 100, 150, 200, 300, 500, 700)
"""Steps of a descent that are shown: document 003's up to 60, then fewer and fewer."""

LATER = 1000
"""From this step on, every 1000th is shown."""

LIVE = 100
"""About how many steps the live line shows."""


class Recovering:
    """One model, target and method, for prompt after prompt."""

    def __init__(
        self,
        subject: Subject,
        target: Target,
        method: str,
        rule: Rule,
        asked: argparse.Namespace,
        display: PromptDisplay,
    ) -> None:
        self.subject, self.target, self.method, self.rule = subject, target, method, rule
        self.asked, self.display = asked, display

    @property
    def title(self) -> str:
        """What is inverted, and how."""
        subject = self.subject
        dtype = str(subject.dtype).removeprefix("torch.")
        block = f"block {self.target.depth}"
        output = str(self.target).replace(block, f"{block} of {subject.layers}", 1)
        words = f"{subject.name}, {output}; {dtype} on {subject.device}"
        if self.method != "descent":
            return f"{words}: {self.method}"
        asked = self.asked
        kind = "Adam" if asked.optimiser == "adam" else "plain descent"
        return (
            f"{words}: {kind}, {asked.distance}, rate {asked.rate:g} ({asked.schedule}), "
            f"start {asked.start}, decoder {asked.decoder}"
        )

    def invert(self, prompt: list[int]) -> Recovery:
        """Recover one prompt and show how."""
        given = torch.tensor([prompt], device=self.subject.device)
        wanted = self._output(given)
        self.display.begin(prompt)
        with refusals(f"{self.subject.name}: {self.method} cannot be run on it"):
            made = self._descend if self.method == "descent" else self._search
            outcome = made(prompt, wanted)
        self.display.end(outcome)
        return outcome

    def _output(self, given: Tensor) -> Tensor:
        """The output that is to be explained."""
        with refusals(f"{self.subject.name}: gives no output {self.target}"):
            try:
                wanted = self.target.output(self.subject, given).detach()
                check_target(self.subject, self.target, wanted)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise RuntimeError(str(error)) from error
        return wanted

    def _search(self, prompt: list[int], wanted: Tensor) -> Recovery:
        def tell(place: int, found: SearchResult) -> None:
            self.display.place(prompt, place, found)

        began = time.perf_counter()
        with self.display.searching(prompt):
            found = inversion.invert(self.subject, self.target, wanted, self.method, at_place=tell)
        return Recovery(prompt, found, time.perf_counter() - began - found.set_up_seconds)

    def _descend(self, prompt: list[int], wanted: Tensor) -> Recovery:
        steps, asked, shown = self.rule.steps, self.asked, []
        keep = {step for step in SHOWN if step < steps} | {*range(LATER, steps, LATER), steps}
        stride = self.rule.every * max(1, steps // (self.rule.every * LIVE))
        live = set(range(0, steps, stride)) if self.display.console.is_terminal else set()

        def tell(rows: slice, step: int, embeddings: Tensor, losses: Tensor) -> None:
            tokens = inversion.decode(self.subject, embeddings[0], asked.decoder)
            now = DescentStep(step, float(losses[0]), tokens.tolist())
            if step in keep:
                shown.append(now)
                self.display.step(prompt, now)
            self.display.now(prompt, now, steps)

        began = time.perf_counter()
        with self.display.descending(prompt):
            found = inversion.invert(
                self.subject,
                self.target,
                wanted,
                "descent",
                decoder=asked.decoder,
                rule=self.rule,
                rate=asked.rate,
                seed=asked.seed,
                begin=asked.start,
                watch=sorted(keep | live),
                at_step=tell,
            )
        seconds, top = time.perf_counter() - began, []
        if asked.top and found.embeddings is not None:
            ends = found.embeddings[0]
            top = inversion.likeliest(self.subject, ends, asked.top, asked.decoder).tolist()
        return Recovery(prompt, found, seconds, shown, top)


@contextmanager
def refusals(words: str) -> Iterator[None]:
    """What a model raises, as `BadInput`; a lack of memory is called that."""
    try:
        yield
    except (RuntimeError, AssertionError, MemoryError) as error:
        if memory.lacking(error):
            raise BadInput(f"too little memory: {brief(error)}; try a shorter prompt") from error
        raise BadInput(f"{words} ({brief(error)})") from error
