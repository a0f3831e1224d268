"""The two comparisons of one model with another: as they run, and in float64."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from assay.harness.checking.check import Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.profiles import Profile
from assay.harness.checking.reference import Reference, run_elsewhere
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import (
    ROUTER_GAP,
    TOLERANCES,
    Tolerance,
)
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.operations.parity import control, divergence, states, tensors
from assay.harness.operations.parity.control import Moved
from assay.harness.operations.parity.divergence import Divergence
from assay.harness.operations.parity.outcome import AS_RUN, IN_FLOAT64, Parity
from assay.harness.operations.parity.prompts import NUMBER, prompts
from assay.harness.operations.parity.states import OUTPUTS, STATE, block_names
from assay.harness.results.errors import Missing, brief
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, margin


@dataclass
class Comparison:
    """The two comparisons of ``one`` with ``other``, in one dtype."""

    one: Subject
    other: Subject
    profile: Profile
    seed: int
    with_states: bool
    outcome: Parity

    def __post_init__(self) -> None:
        for each in (self.one, self.other):
            each.settings = dataclasses.replace(each.settings, reach=self.profile.reach)
        self.prompts = prompts(self.one, self.other, self.profile, self.seed)
        self.way, why = states.NONE, "logits alone were asked for"
        if self.with_states:
            self.way, why = states.common_states(
                self.one, self.other, min(self.prompts, key=lambda p: p.shape[1])
            )
        compared = f"compared: logits, and {states.WAYS[self.way]}"
        if self.way == states.NONE:
            compared = f"compared: logits alone ({why})"
        self.outcome.notes.append(compared)
        contexts = self.one.context, self.other.context
        if contexts[0] != contexts[1]:
            words = ["no limit" if each is None else f"a limit of {each}" for each in contexts]
            self.outcome.notes.append(
                f"prompts: {self.one.name} has {words[0]} on tokens and {self.other.name} "
                f"{words[1]}; longer prompts are not compared"
            )
        self.alike = states.is_one_class(self.one, self.other)

    @property
    def tolerance(self) -> Tolerance:
        """That of the coarser precision in which the two compute."""
        kinds = {precision.working(each) for each in (self.one, self.other)}
        return TOLERANCES[max(kinds, key=lambda dtype: torch.finfo(dtype).eps)]

    def rows(self, subject: Subject, ids: Tensor) -> Rows:
        """The compared rows of a pass."""
        return states.rows(subject, ids, self.way)

    # -- the two comparisons --------------------------------------------------------------------

    def as_run(self) -> Result:
        """The rows of both as they run, each as near to float64 as the other's."""
        one, other = self.one, self.other
        try:
            try:
                exact = reference_of(other)
            except Missing:  # then the other way round: agreeing goes both ways
                one, other, exact = other, one, reference_of(one)
        except Missing as missing:
            return self._without(AS_RUN, Verdict.INCONCLUSIVE, str(missing))
        return Level(self, AS_RUN, self.tolerance, (one, other, exact), other).settle()

    def in_float64(self) -> Result:
        """The float64 copies of both."""
        if self.other.dtype == torch.float64:
            why = "the models run in float64 themselves"
            return self._without(IN_FLOAT64, Verdict.NOT_APPLICABLE, why)
        dtype, same = torch.float32, tensors.same_numbers(self.one, self.other)
        if not same and self.other.dtype == dtype:
            self.outcome.notes.append(
                "the weights are not the same numbers: what no prompt used may differ"
            )
        elif not same:
            dtype = self.other.dtype
            self.outcome.notes.append(
                "the weights are not the same numbers: in float64, too, the bound is that of "
                f"{dtype_name(dtype)}, to which they are rounded"
            )
        try:
            models = reference_of(self.one), reference_of(self.other), reference_of(self.other)
        except Missing as missing:
            return self._without(IN_FLOAT64, Verdict.NOT_APPLICABLE, str(missing))
        return Level(
            self, IN_FLOAT64, TOLERANCES[dtype], models, reference_of(self.other), dtype
        ).settle()

    def _without(self, name: str, verdict: Verdict, why: str) -> Result:
        return Result(NUMBER, name, Kind.LAW, self.one.name, verdict, reason=why)


@dataclass
class Level:
    """One of the comparisons: ``models`` are the one observed, the plain path, the reference.

    ``moves`` is the model whose weight the control moves.  With ``rounded`` the plain path is the
    reference with what every module returns rounded to that dtype.
    """

    comparison: Comparison
    name: str
    tolerance: Tolerance
    models: tuple[Subject, Subject, Subject]
    moves: Subject
    rounded: torch.dtype | None = None

    def __post_init__(self) -> None:
        self.check = Check(self.models[2] if self.rounded else self.models[1])

    def plain(self, ids: Tensor) -> Rows:
        """The rows by which the bound is calibrated."""
        subject = self.models[1]
        if self.rounded is None:
            return self.comparison.rows(subject, ids)
        with (
            states.rounding_to(subject, self.rounded),
            states.moved_tables(subject, torch.float32),
        ):
            return self.comparison.rows(subject, ids)

    def elsewhere(self, ids: Tensor) -> list[Rows]:
        """The plain path as other machines round it, and with tables made otherwise."""
        exact = self.tolerance == TOLERANCES[torch.float64]
        with states.moved_tables(self.models[1], torch.float64 if exact else torch.float32):
            other_tables = self.comparison.rows(self.models[1], ids)
        return [*run_elsewhere(lambda: self.plain(ids))(), other_tables]

    def reference(self, ids: Tensor) -> Reference:
        """The plain path and its reference for a batch of ids [batch, n]."""
        elsewhere: Callable[[], Sequence[Rows]] = tuple
        if self.rounded is None:
            elsewhere = functools.cache(lambda: self.elsewhere(ids))
        return Reference(self.plain(ids), self.comparison.rows(self.models[2], ids), elsewhere)

    def same(self, expected: Reference, observed: Rows) -> Broken | None:
        """How the two differ, if they do.

        Raises `Unsettled` where the plain path itself is off by more than any bound allows, as
        where it overflows.
        """
        self.check.begin()
        for name, own in expected.errors(ROUTER_GAP * self.tolerance.floor).items():
            if not own.error <= self.tolerance.most:
                raise Unsettled(
                    f"{self.comparison.other.name} itself is off by {own.error:.2g} at {name}, "
                    f"which is more than any bound in {dtype_name(self.comparison.other.dtype)}"
                )
        try:
            self.check.same(expected, observed, self.tolerance)
        except Broken as broken:
            return broken
        return None

    def settle(self) -> Result:
        """Compare on every prompt until one breaks, run the control, and judge."""
        began = time.perf_counter()
        tried, settled = 0, list[Tensor]()
        broken: tuple[Broken, Tensor] | None = None
        result = self._result(Verdict.INCONCLUSIVE, "")
        for ids in self.comparison.prompts:
            tried += 1
            try:
                found = self.same(self.reference(ids), self.comparison.rows(self.models[0], ids))
            except Unsettled as error:
                result = replace(result, reason=str(error))
                continue
            except ENDS as error:
                why = shortage(error) or brief(error)
                reason = f"ids {[*ids.shape]} cannot be run by both ({why})"
                return replace(result, reason=reason, examples=tried)
            settled.append(ids)
            if found is not None:
                broken = found, ids
                break
        observed, allowed = self.check.observed, self.check.allowed
        moved = self.control(settled or self.comparison.prompts)
        details: dict[str, Any] = {"controls": {}, "moved weight": moved and moved.as_json()}
        details["prompts compared"] = f"{len(settled)} of {tried}"
        seen = moved is not None and moved.by is not None
        details["controls"]["one weight moved"] = {
            "says": "no weight to move" if moved is None else str(moved),
            "rejected": int(seen),
            "tried": int(moved is not None),
            "margin": 0.0,
        }
        result = replace(
            result,
            observed=observed,
            bound=allowed,
            margin=margin(observed, allowed),
            examples=tried,
            details=details,
        )
        if broken is not None:
            result = self._broken(result, *broken)
        elif 2 * len(settled) < tried:
            left = f"{tried - len(settled)} of {tried} prompts cannot be compared"
            result = replace(result, reason=f"{left}: {result.reason}")
        elif not seen:
            what = "there is no weight to move" if moved is None else str(moved)
            result = replace(result, reason=f"the control was not rejected: {what}")
        else:
            result = replace(result, verdict=Verdict.UPHELD, reason="")
        return replace(result, seconds=time.perf_counter() - began)

    def _result(self, verdict: Verdict, why: str) -> Result:
        subject = self.comparison.one.name
        return Result(NUMBER, self.name, Kind.LAW, subject, verdict, reason=why)

    # -- where they differ ----------------------------------------------------------------------

    def _broken(self, result: Result, broken: Broken, ids: Tensor) -> Result:
        ids, broken = self._smallest(ids, broken)
        reason = ""
        verdict = Verdict.REFUTED
        of_states = broken.where.startswith(STATE) and not self.comparison.alike
        if of_states and not self._logits_differ():
            verdict = Verdict.INCONCLUSIVE
            reason = (
                f"the logits agree and the outputs of blocks do not ({broken.where}): the models "
                "divide their work into blocks otherwise, or logits hide a difference; compare "
                "logits alone"
            )
        place = self.locate(ids)
        if place is not None:
            result.details["first divergence"] = place.as_json()
            current = self.comparison.outcome.divergence
            # Float64, which comes last, sees the first difference; else what runs shows it.
            if current is None or self.name == IN_FLOAT64:
                self.comparison.outcome.divergence = place
        text = " | ".join(" ".join(map(str, row)) for row in ids.tolist())
        return replace(
            result,
            verdict=verdict,
            reason=reason,
            observed=broken.observed,
            bound=broken.allowed,
            margin=margin(broken.observed, broken.allowed),
            counterexample=Counterexample(
                inputs={"ids": text},
                observed=broken.observed,
                allowed=broken.allowed,
                where=broken.where,
            ),
        )

    def _smallest(self, ids: Tensor, broken: Broken) -> tuple[Tensor, Broken]:
        """The shortest of some beginnings of a prompt on which the two differ, and how."""
        first = max(each.shortest for each in (self.comparison.one, self.comparison.other))
        lengths = {first, *(2**k for k in range(12)), ids.shape[1]}
        for n in sorted(n for n in lengths if first <= n <= ids.shape[1]):
            for row in range(len(ids)):
                some = ids[row : row + 1, :n]
                try:
                    observed = self.comparison.rows(self.models[0], some)
                    if (found := self.same(self.reference(some), observed)) is not None:
                        return some, found
                except (Unsettled, *ENDS):
                    continue
        return ids, broken

    def _logits_differ(self) -> bool:
        """Whether the model's outputs differ on any prompt, even if their blocks' agree."""
        for ids in self.comparison.prompts:
            expected, observed = self.reference(ids), self.comparison.rows(self.models[0], ids)
            only = expected.map(_outputs)
            try:
                if self.same(only, _outputs(observed)) is not None:
                    return True
            except Unsettled:
                continue
        return False

    def locate(self, ids: Tensor) -> Divergence | None:
        """The first block and module whose results differ for ids [1, n]."""
        one, plain, exact = self.models
        expected, observed = self.reference(ids), self.comparison.rows(one, ids)
        settled = expected.settled(ROUTER_GAP * self.tolerance.floor)
        outputs = {n: t for n, t in expected.oracle.tensors.items() if n.startswith(STATE)}
        apart = divergence.first_apart(
            observed.tensors, expected.plain.tensors, outputs, self.tolerance, settled
        )
        first = int(apart.name.removeprefix(STATE)) if apart else 0
        names = block_names(self.comparison.other)

        def calls(subject: Subject, run: Callable[[Tensor], Rows]) -> divergence.Calls:
            with divergence.recorded(subject, *ids.shape) as found:
                run(ids)
            return found

        place = divergence.locate(
            calls(one, lambda some: self.comparison.rows(one, some)),
            calls(plain, self.plain),
            calls(exact, lambda some: self.comparison.rows(exact, some)),
            self.tolerance,
            names,
            first,
            settled,
        )
        if place is not None:
            return place
        if apart is None:  # the blocks agree, and so do modules that both have
            apart = divergence.first_apart(
                observed.tensors,
                expected.plain.tensors,
                _outputs(expected.oracle).tensors,
                self.tolerance,
                settled,
            )
            if apart is None:
                return None
            return Divergence(None, len(names), "", "", "", apart.observed, apart.allowed)
        name = names[first - 1] if 0 < first <= len(names) else ""
        return Divergence(first, len(outputs) - 1, name, "", "", apart.observed, apart.allowed)

    # -- the control ----------------------------------------------------------------------------

    def control(self, prompts: Sequence[Tensor]) -> Moved | None:
        """One weight of the model compared with, moved until that is detected on the longest of
        ``prompts``; None: no weight.
        """
        ids = max(prompts, key=lambda each: each.shape[1])
        expected = self.reference(ids)
        if self.check.wide:
            expected.elsewhere()  # now, while no weight is moved

        def detected() -> bool:
            observed = self.comparison.rows(self.moves, ids)
            try:
                Check(self.check.subject).same(expected, observed, self.tolerance)
            except Broken:
                return True
            except Unsettled:
                return False
            return False

        return control.smallest(self.moves, detected)


def _outputs(rows: Rows) -> Rows:
    """The model's outputs among the rows, and how clearly experts are chosen."""
    return rows.only(*(name for name in rows.tensors if name in (*OUTPUTS, "router gap")))
