"""Recovers one prompt after another from a model's output, and shows how."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from assay.harness import inversion
from assay.harness.cli.recovery import DescentStep, Recovery
from assay.harness.cli.showing import PromptDisplay
from assay.harness.inversion import Target, kept_maps
from assay.harness.inversion.descent import check_target
from assay.harness.inversion.from_less import from_last, from_shuffled
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject
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
        options: argparse.Namespace,
        display: PromptDisplay,
    ) -> None:
        self.subject, self.target, self.method, self.rule = subject, target, method, rule
        self.options, self.display = options, display

    @property
    def title(self) -> str:
        """The output that is inverted, and the method."""
        subject = self.subject
        dtype = str(subject.dtype).removeprefix("torch.")
        block = f"block {self.target.depth}"
        output = str(self.target).replace(block, f"{block} of {subject.layers}", 1)
        words = f"{subject.name}, {output}; {dtype} on {subject.device}"
        if self.options.given != "all":
            kinds = {"shuffled": "states in unknown order", "last": "the last state alone"}
            return f"{words}: {kinds[self.options.given]}"
        if self.method != "descent":
            return f"{words}: {self.method}"
        options = self.options
        kind = "Adam" if options.optimiser == "adam" else "plain descent"
        return (
            f"{words}: {kind}, {options.distance}, rate {options.rate:g} ({options.schedule}), "
            f"start {options.start}, decoder {options.decoder}"
        )

    def invert(self, prompt: list[int]) -> Recovery:
        """Recover one prompt and show how."""
        ids = torch.tensor([prompt], device=self.subject.device)
        output = self._output(ids)
        self.display.begin(prompt)
        with model_errors(f"{self.subject.name}: {self.method} cannot be run on it"):
            recover = self._descend if self.method == "descent" else self._search
            if self.options.given != "all":
                recover = self._from_less
            outcome = recover(prompt, output)
        self.display.end(outcome)
        return outcome

    def _output(self, ids: Tensor) -> Tensor:
        """The output to be inverted."""
        with model_errors(f"{self.subject.name}: gives no output {self.target}"):
            try:
                output = self.target.output(self.subject, ids).detach()
                check_target(self.subject, self.target, output)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise RuntimeError(str(error)) from error
        return output

    def _search(self, prompt: list[int], output: Tensor) -> Recovery:
        def show(position: int, search: SearchResult) -> None:
            self.display.place(prompt, position, search)

        def show_pass(search: SearchResult) -> None:
            self.display.guess(prompt, search)

        whole = self.method == "exact"
        began = time.perf_counter()
        with self.display.guessing(prompt) if whole else self.display.searching(prompt):
            inverted = inversion.invert(
                self.subject,
                self.target,
                output,
                self.method,
                at_place=show,
                at_pass=show_pass,
                keep=None if self.options.no_keep else kept_maps.default_folder(),
            )
        if whole:
            self.display.remarks(prompt, inverted)
        return Recovery(prompt, inverted, time.perf_counter() - began - inverted.set_up_seconds)

    def _from_less(self, prompt: list[int], output: Tensor) -> Recovery:
        """From the states in unknown order, or the last of them."""
        began, n = time.perf_counter(), len(prompt)
        if self.options.given == "last":
            found = from_last(self.subject, self.target, output[:, -1], n)
            found.notes.insert(0, "linear probes of the last state; few tokens can be right")
        else:
            draw = torch.Generator().manual_seed(self.options.seed)
            order = torch.randperm(n, generator=draw).to(output.device)
            found, places = from_shuffled(self.subject, self.target, output[:, order])
            here = order[places[0]] == torch.arange(n, device=order.device)
            right = int((here & found.verified[0]).sum())
            found.notes.insert(0, f"{right} of {n} states were put in their places")
        return Recovery(prompt, found, time.perf_counter() - began - found.set_up_seconds)

    def _descend(self, prompt: list[int], output: Tensor) -> Recovery:
        steps, options, shown = self.rule.steps, self.options, []
        keep = {step for step in SHOWN if step < steps} | {*range(LATER, steps, LATER), steps}
        stride = self.rule.every * max(1, steps // (self.rule.every * LIVE))
        live = set(range(0, steps, stride)) if self.display.console.is_terminal else set()

        def show(rows: slice, step: int, embeddings: Tensor, losses: Tensor) -> None:
            tokens = inversion.decode(self.subject, embeddings[0], options.decoder)
            now = DescentStep(step, float(losses[0]), tokens.tolist())
            if step in keep:
                shown.append(now)
                self.display.step(prompt, now)
            self.display.now(prompt, now, steps)

        began = time.perf_counter()
        with self.display.descending(prompt):
            inverted = inversion.invert(
                self.subject,
                self.target,
                output,
                "descent",
                decoder=options.decoder,
                rule=self.rule,
                rate=options.rate,
                seed=options.seed,
                begin=options.start,
                watch=sorted(keep | live),
                at_step=show,
            )
        seconds, top = time.perf_counter() - began, []
        if options.top and inverted.embeddings is not None:
            ends = inverted.embeddings[0]
            top = inversion.likeliest(self.subject, ends, options.top, options.decoder).tolist()
        return Recovery(prompt, inverted, seconds, shown, top)


@contextmanager
def model_errors(words: str) -> Iterator[None]:
    """Turn a model's errors into `BadInput`; out-of-memory errors are reported as such."""
    try:
        yield
    except (RuntimeError, AssertionError, MemoryError) as error:
        if memory.lacking(error):
            raise BadInput(f"too little memory: {brief(error)}; try a shorter prompt") from error
        raise BadInput(f"{words} ({brief(error)})") from error
