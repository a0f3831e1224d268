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
from assay.harness.models.reference.tolerances import ROUTER_GAP, TOLERANCES, Tolerance
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.operations.parity import control, recording, tensors
from assay.harness.operations.parity.compared_prompts import NUMBER, prompts
from assay.harness.operations.parity.outcome import AS_RUN, IN_FLOAT64, Divergence, Parity
from assay.harness.operations.parity.recording import STATE, Site, rows
from assay.harness.results.errors import Missing, brief
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, margin


class Pair:
    """Two models in one dtype, the prompts that both get, and the ``outcome`` to fill."""

    def __init__(
        self,
        one: Subject,
        other: Subject,
        profile: Profile,
        seed: int,
        states: bool,
        outcome: Parity,
    ) -> None:
        self.one, self.other, self.outcome = one, other, outcome
        for each in (one, other):
            each.settings = dataclasses.replace(each.settings, reach=profile.reach)
        self.prompts = prompts(one, other, profile, seed)
        self.states, why = states, "logits alone were asked for"
        if states:
            shortest = min(self.prompts, key=lambda ids: ids.shape[1])
            self.states, why = recording.common_states(one, other, shortest)
        rest = "logits, and the output of each block"
        outcome.notes.append(f"compared: {rest if self.states else f'logits alone ({why})'}")
        if one.context != other.context:
            limits = [
                "no limit" if each.context is None else f"a limit of {each.context}"
                for each in (one, other)
            ]
            outcome.notes.append(
                f"prompts: {one.name} has {limits[0]} on tokens and {other.name} {limits[1]}; "
                "longer prompts are not compared"
            )

    @property
    def is_one_class(self) -> bool:
        """Whether both models are of one class, or of one function's making."""
        pair = self.one.model, self.other.model
        return len({(type(each), getattr(each.config, "inner", "")) for each in pair}) == 1

    def as_run(self) -> Result:
        """The rows of both as they run, each as near to float64 as the other's."""
        one, other = self.one, self.other
        try:
            try:
                exact = reference_of(other)
            except Missing:  # then the other way round: agreeing goes both ways
                one, other, exact = other, one, reference_of(one)
        except Missing as missing:
            return self.result(AS_RUN, Verdict.INCONCLUSIVE, str(missing))
        kinds = {precision.working(each) for each in (one, other)}
        coarse = max(kinds, key=lambda dtype: torch.finfo(dtype).eps)
        return Level(self, AS_RUN, TOLERANCES[coarse], one, other, exact).judge()

    def in_float64(self) -> Result:
        """The float64 copies of both."""
        if self.other.dtype == torch.float64:
            why = "the models run in float64 themselves"
            return self.result(IN_FLOAT64, Verdict.NOT_APPLICABLE, why)
        dtype, notes = torch.float32, self.outcome.notes
        if not tensors.same_numbers(self.one, self.other):
            dtype, unlike = self.other.dtype, "the weights are not the same numbers: "
            if dtype == torch.float32:
                notes.append(f"{unlike}what no prompt used may differ")
            else:
                notes.append(
                    f"{unlike}in float64, too, the bound is that of {dtype_name(dtype)}, to which "
                    "they are rounded"
                )
        try:
            one, other = reference_of(self.one), reference_of(self.other)
        except Missing as missing:
            return self.result(IN_FLOAT64, Verdict.NOT_APPLICABLE, str(missing))
        return Level(self, IN_FLOAT64, TOLERANCES[dtype], one, other, other, dtype).judge()

    def result(self, name: str, verdict: Verdict, why: str = "") -> Result:
        """A result without numbers."""
        return Result(NUMBER, name, Kind.LAW, self.one.name, verdict, reason=why)


@dataclass
class Level:
    """One of the comparisons: ``one`` is observed, ``plain`` calibrates its bound, and ``exact``
    is the reference of both.

    With ``rounded`` the plain path is rounded to that dtype after every module.
    """

    pair: Pair
    name: str
    tolerance: Tolerance
    one: Subject
    plain: Subject
    exact: Subject
    rounded: torch.dtype | None = None

    def __post_init__(self) -> None:
        self.check = Check(self.plain)

    def run_plain(self, ids: Tensor, states: bool) -> Rows:
        """The rows by which the bound is calibrated."""
        if self.rounded is None:
            return rows(self.plain, ids, states)
        with (
            recording.rounding_to(self.plain, self.rounded),
            recording.moved_tables(self.plain, torch.float32),
        ):
            return rows(self.plain, ids, states)

    def reference(self, ids: Tensor, states: bool) -> Reference:
        """The plain path, its reference, and the plain path as other machines round it, and with
        tables made otherwise, for a batch of ids [batch, n].
        """

        @functools.cache
        def elsewhere() -> Sequence[Rows]:
            exact = self.tolerance == TOLERANCES[torch.float64]
            with recording.moved_tables(self.plain, torch.float64 if exact else torch.float32):
                other_tables = rows(self.plain, ids, states)
            return [*run_elsewhere(lambda: self.run_plain(ids, states))(), other_tables]

        plain, exact = self.run_plain(ids, states), rows(self.exact, ids, states)
        return Reference(plain, exact, tuple if self.rounded else elsewhere)

    def difference(self, ids: Tensor, states: bool) -> Broken | None:
        """How the two differ on a batch of ids [batch, n], if they do.

        Raises `Unsettled` where the plain path itself is off by more than any bound allows, as
        where it overflows.
        """
        expected = self.reference(ids, states)
        self.check.record.begin()
        for name, own in expected.errors(ROUTER_GAP * self.tolerance.floor).items():
            if not own.error <= self.tolerance.most:
                other = self.pair.other
                raise Unsettled(
                    f"{other.name} itself is off by {own.error:.2g} at {name}, which is more than "
                    f"any bound in {dtype_name(other.dtype)}"
                )
        return self.compare(self.check, expected, rows(self.one, ids, states))

    def compare(self, check: Check, expected: Reference, observed: Rows) -> Broken | None:
        """How ``observed`` differs from the reference by more than the bound, if it does."""
        try:
            check.same(expected, observed, self.tolerance)
        except Broken as broken:
            return broken
        return None

    def judge(self) -> Result:
        """Compare on every prompt until one shows a difference, run the control, and judge."""
        began = time.perf_counter()
        compared, reason = list[Tensor](), ""
        broken: Broken | None = None
        result = self.pair.result(self.name, Verdict.INCONCLUSIVE)
        for ids in self.pair.prompts:
            result = replace(result, examples=result.examples + 1)
            try:
                broken = self.difference(ids, self.pair.states)
            except Unsettled as error:
                reason = str(error)
                continue
            except ENDS as error:
                why = shortage(error) or brief(error)
                reason = f"ids {[*ids.shape]} cannot be run by both ({why})"
                return replace(result, reason=reason)
            compared.append(ids)
            if broken is not None:
                break
        record, tried = self.check.record, result.examples
        observed, allowed = record.observed, record.allowed
        says, rejects, moved = self.controlled(compared or self.pair.prompts)
        details: dict[str, Any] = {
            "controls": {
                "one weight moved": {
                    "says": says,
                    "rejected": int(rejects),
                    "tried": int(rejects or moved is not None),
                    "margin": 0.0,
                }
            },
            "moved weight": moved,
            "prompts compared": f"{len(compared)} of {tried}",
        }
        if broken is not None:
            result = self.refuted(result, *self.smallest(compared[-1], broken), details)
        else:
            uncompared = tried - len(compared)
            if 2 * len(compared) < tried:
                reason = f"{uncompared} of {tried} prompts cannot be compared: {reason}"
            elif not rejects:
                reason = f"the control was not rejected: {says}"
            else:
                result, reason = replace(result, verdict=Verdict.UPHELD), ""
            numbers = {"observed": observed, "bound": allowed, "margin": margin(observed, allowed)}
            result = replace(result, reason=reason, details=details, **numbers)
        return replace(result, seconds=time.perf_counter() - began)

    # -- where they differ ----------------------------------------------------------------------

    def smallest(self, ids: Tensor, broken: Broken) -> tuple[Tensor, Broken]:
        """The shortest of some beginnings of a prompt on which the two differ, and how."""
        first = max(self.pair.one.shortest, self.pair.other.shortest)
        lengths = {first, *(2**k for k in range(12)), ids.shape[1]}
        for n in sorted(n for n in lengths if first <= n <= ids.shape[1]):
            for row in ids[:, :n].split(1):
                try:
                    difference = self.difference(row, self.pair.states)
                except (Unsettled, *ENDS):
                    continue
                if difference is not None:
                    return row, difference
        return ids, broken

    def refuted(
        self, result: Result, ids: Tensor, broken: Broken, details: dict[str, Any]
    ) -> Result:
        """The result for a difference on ``ids`` [batch, n], and where it begins."""
        verdict, reason = Verdict.REFUTED, ""
        where = recording.in_words(broken.where, recording.block_names(self.pair.other))
        of_states = broken.where.startswith(STATE) and not self.pair.is_one_class
        if of_states and not self.outputs_differ():
            verdict = Verdict.INCONCLUSIVE
            reason = (
                f"the logits agree and the outputs of blocks do not ({where}): the models "
                "divide their work into blocks otherwise, or logits hide a difference; compare "
                "logits alone"
            )
        place, outcome = self.locate(ids), self.pair.outcome
        if place is not None:
            details["first divergence"] = place.as_json()
            # Float64, which comes last, sees the first difference; else what runs shows it.
            outcome.divergence = place
        inputs = {"ids": " | ".join(" ".join(map(str, row)) for row in ids.tolist())}
        observed, allowed = broken.observed, broken.allowed
        return replace(
            result,
            verdict=verdict,
            reason=reason,
            observed=observed,
            bound=allowed,
            margin=margin(observed, allowed),
            counterexample=Counterexample(
                inputs=inputs, observed=observed, allowed=allowed, where=where
            ),
            details=details,
        )

    def outputs_differ(self) -> bool:
        """Whether the models' outputs differ on any prompt, even if their blocks' agree."""
        for ids in self.pair.prompts:
            try:
                if self.difference(ids, states=False) is not None:
                    return True
            except Unsettled:
                continue
        return False

    def locate(self, ids: Tensor) -> Divergence | None:
        """The first module, block or output that differs for ids [batch, n]; None: none does.

        Where the outputs of the first blocks agree, what their modules do does not count.  Of a
        module that gets something else already, the cause lies in the code that calls it.
        """
        sites: dict[str, Site] = {}

        def record(subject: Subject, run: Callable[[], Rows]) -> tuple[Rows, Rows]:
            nonlocal sites
            with recording.module_calls(subject, *ids.shape) as (calls, sites):
                return run(), Rows(calls)

        states = self.pair.states
        ends, calls = zip(
            record(self.one, lambda: rows(self.one, ids, states)),
            record(self.plain, lambda: self.run_plain(ids, states)),
            record(self.exact, lambda: rows(self.exact, ids, states)),
            strict=True,
        )
        gaps = ends[-1].tensors.get("router gap")
        outputs = [name for name in ends[-1].tensors if name != "router gap"]
        name, broken = self.first_difference(*ends, outputs, gaps)
        first = int(name.removeprefix(STATE)) if name.startswith(STATE) else 0
        site = Site(first if name.startswith(STATE) else None, "", "")
        inside = [name for name, site in sites.items() if (site.block or first) >= first]
        name, inner = self.first_difference(*calls, inside, gaps)
        site, broken = (sites[name], inner) if inner else (site, broken)
        if broken is None:
            return None
        names = recording.block_names(self.pair.other)
        named = names[site.block - 1] if site.block and site.block <= len(names) else ""
        numbers = broken.observed, broken.allowed
        return Divergence(site.block, len(names), named, site.module, site.part, *numbers)

    def first_difference(
        self,
        observed: Rows,
        plain: Rows,
        exact: Rows,
        names: Sequence[str],
        gaps: Tensor | None,
    ) -> tuple[str, Broken | None]:
        """The first of the tensors ``names`` that ``observed`` differs in by too much, and how.

        ``gaps`` [batch, n, 1] are the router gaps, which say which rows count; None: all do.
        """
        for name in names:
            mine, usual, right = (each.tensors.get(name) for each in (observed, plain, exact))
            if mine is None or usual is None or right is None:
                continue
            if not mine.shape == usual.shape == right.shape:
                continue
            reference = {name: right}
            if gaps is not None and gaps.shape[:2] == right.shape[:2]:
                reference["router gap"] = gaps
            expected = Reference(Rows({name: usual}), Rows(reference))
            try:
                broken = self.compare(Check(self.plain), expected, Rows({name: mine}))
            except Unsettled:
                continue
            if broken is not None:
                return name, broken
        return "", None

    # -- the control ----------------------------------------------------------------------------

    def controlled(self, prompts: Sequence[Tensor]) -> tuple[str, bool, dict[str, Any] | None]:
        """The control in words, whether it is rejected, and the weight that it moves."""
        moved = self.control(prompts)
        if moved is None:
            return "there is no weight to move", False, None
        return str(moved), moved.by is not None, moved.as_json()

    def control(self, prompts: Sequence[Tensor]) -> control.Moved | None:
        """One weight of the model compared with, moved until that is detected on the longest of
        ``prompts``; None: no weight.
        """
        ids = max(prompts, key=lambda each: each.shape[1])
        expected = self.reference(ids, self.pair.states)
        if self.check.wide:
            expected.elsewhere()  # now, while no weight is moved

        def detected() -> bool:
            observed = rows(self.plain, ids, self.pair.states)
            try:
                return self.compare(Check(self.plain), expected, observed) is not None
            except Unsettled:
                return False

        return control.smallest(self.plain, detected)
