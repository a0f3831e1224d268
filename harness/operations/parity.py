"""Compares two models that should compute the same, such as a port and its original.

The same ids go to both.  Two comparisons, each against a float64 reference of the model compared
with, and each with a control that must be rejected (one weight of that model, moved):

- *as they run*: the model's rows are as near to the float64 reference as those of the model that
  it is compared with, within the bound of the laws (`harness.models.tolerances`);
- *in float64*: the float64 copies of both agree.  There rounding hides nothing, so that a wrong
  epsilon shows that no 16-bit pass would.  The bound is float32's: tables and constants are often
  kept in float32 whatever the dtype of the weights.  Where the weights of 16 bits are not the same
  numbers (an adapter was merged, and rounded again) it is that of their dtype.

Of two dtypes, the model in the finer one is converted to the other first.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.harness.checking import sensitivity
from assay.harness.checking.check import Broken, Check, Unsettled
from assay.harness.checking.draws import Draws
from assay.harness.checking.measures import kl
from assay.harness.checking.profiles import Profile
from assay.harness.checking.reference import Reference, run_elsewhere
from assay.harness.checking.statistics import bounded_mean
from assay.harness.models import edges, meant, precision, runs
from assay.harness.models.devices import dtype_name
from assay.harness.models.lengths import LONG, ONE_LONG_IN, usual_longest
from assay.harness.models.rows import Rows
from assay.harness.models.runs import Options
from assay.harness.models.shortage import ENDS, shortage
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import ROUTER_GAP, TOLERANCES, Tolerance
from assay.harness.models.upcasting import Upcast
from assay.harness.operations import divergence, variants
from assay.harness.operations.divergence import STATE, Divergence
from assay.harness.results.errors import BadInput, Missing, brief
from assay.harness.results.quiet import quiet
from assay.harness.results.records import Counterexample, RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict, margin

AS_RUN, IN_FLOAT64 = "the same rows as they run", "the same rows in float64"

NUMBER = "parity"
"""The number of these results, where claims have theirs."""

CONFIDENCE = 0.95

CONTINUED = 32
"""Tokens of the prompts whose next tokens are compared."""

MOST_UNLIKE = 100
"""Tensors that are named, of those that differ."""

MASKED = -1e9
"""Logits below this are as good as masked."""

SCORES_AT_ONCE = 2**24
"""Logits of a batch in memory."""

LARGEST_MOVE = 1e4
"""The largest movement of a weight that is tried, in units of its matrix's typical weight."""

CANDIDATES = 6
"""Weights that are tried for the control: not every prompt uses every expert."""


@dataclass(frozen=True)
class Moved:
    """The control: the smallest movement of one weight that is told apart, or None if none is.

    ``weight`` names the parameter, ``index`` its element; ``by`` is the movement, and ``typical``
    the root of the mean square of the parameter's elements.
    """

    weight: str
    index: tuple[int, ...]
    by: float | None
    typical: float

    def __str__(self) -> str:
        where = f"{self.weight}{[*self.index]}"
        if self.by is None:
            return f"{where} moved by {LARGEST_MOVE * self.typical:.2g} is not told apart"
        times = self.by / self.typical if self.typical else float("inf")
        return (
            f"one weight, {where}, moved by {self.by:.2g} ({times:.2g} times a typical weight of "
            "its matrix) is told apart; less is not"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**vars(self), "index": [*self.index]}


@dataclass(frozen=True)
class Distributions:
    """How far the next-token distributions of the two models are apart, as they run.

    ``kl`` is KL(compared with ‖ model) in nats at every position [prompts × n]; ``agree`` the
    share of each prompt's positions [prompts] at which both find the same token the most probable.
    """

    kl: np.ndarray[Any, Any]
    agree: np.ndarray[Any, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types; the interval is over prompts, whose positions are not independent."""
        low, high = bounded_mean.interval(self.agree, CONFIDENCE)
        return {
            "KL in nats": {
                "mean": float(self.kl.mean()),
                "median": float(np.median(self.kl)),
                "99.9 %": float(np.quantile(self.kl, 0.999)),
            },
            "positions": int(self.kl.size),
            "prompts": len(self.agree),
            "top-1 agreement": float(self.agree.mean()),
            "interval": [low, high],
        }


@dataclass
class Parity:
    """The outcome: a result for each comparison, and what else was measured."""

    results: list[Result]
    divergence: Divergence | None = None
    distributions: Distributions | None = None
    unlike: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Refuted if a comparison is, upheld if all are that could be made, else inconclusive."""
        verdicts = [each.verdict for each in self.results]
        if Verdict.REFUTED in verdicts:
            return Verdict.REFUTED
        made = [each for each in verdicts if each is not Verdict.NOT_APPLICABLE]
        upheld = bool(made) and all(each is Verdict.UPHELD for each in made)
        return Verdict.UPHELD if upheld else Verdict.INCONCLUSIVE

    @property
    def exit(self) -> int:
        """The exit code: 0 where the models agree, else 1."""
        return 0 if self.verdict is Verdict.UPHELD else 1


def require_comparable(one: Subject, other: Subject) -> None:
    """Raise `BadInput` where the same ids cannot go to both, or nothing can be compared."""
    if one.vocabulary != other.vocabulary:
        raise BadInput(
            f"{one.name} has a vocabulary of {one.vocabulary} and {other.name} of "
            f"{other.vocabulary}: the same ids cannot go to both"
        )
    ways = [meant.direction(each).ways for each in (one, other)]
    words = {meant.CAUSAL: "is causal", meant.BOTH: "attends both ways"}
    if ways[0] != ways[1]:
        said = [words.get(each or "", "does not say how it attends") for each in ways]
        raise BadInput(f"{one.name} {said[0]} and {other.name} {said[1]}: they cannot be the same")
    if one.is_encoder_decoder != other.is_encoder_decoder:
        which = one if one.is_encoder_decoder else other
        raise BadInput(f"{which.name} is an encoder-decoder, and the other is not")
    outputs = [_outputs(each) for each in (one, other)]
    if not set(outputs[0]) & set(outputs[1]):
        raise BadInput(
            f"{one.name} returns {', '.join(outputs[0])} and {other.name} "
            f"{', '.join(outputs[1])}: there is nothing to compare"
        )


def _outputs(subject: Subject) -> list[str]:
    n = max(2, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None])
    try:
        found = subject.rows(ids, states=False)
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{subject.name}: cannot run a prompt ({why})") from error
    return [
        f"{name} {tensor.shape[-1]} wide"
        for name, tensor in found.tensors.items()
        if name != "router gap"
    ]


def compare(
    one: Subject, other: Subject, profile: Profile, seed: int = 0, states: bool = True
) -> Parity:
    """Compare ``one`` with ``other``, which is taken for right; both are left as they were.

    Without ``states`` logits alone are compared.  Raises `BadInput` where they cannot be.
    """
    require_comparable(one, other)
    with quiet():
        return _compared(one, other, profile, seed, states)


def _compared(one: Subject, other: Subject, profile: Profile, seed: int, states: bool) -> Parity:
    outcome = Parity([])
    given = one, other
    one, other, notes = in_one_dtype(one, other)
    outcome.notes += notes
    comparison = Comparison(one, other, profile, seed, states, outcome)
    as_run, in_float64 = comparison.as_run(), comparison.in_float64()
    if as_run.verdict is Verdict.UPHELD and in_float64.verdict is Verdict.REFUTED:
        why = f"as they run, rounding in {dtype_name(other.dtype)} hides the difference"
        in_float64 = replace(in_float64, reason=why)
    outcome.results = [as_run, in_float64]
    outcome.unlike = unlike_weights(one, other)
    outcome.distributions = distributions(*given, profile, seed)
    return outcome


def in_one_dtype(one: Subject, other: Subject) -> tuple[Subject, Subject, list[str]]:
    """Both in the coarser of their dtypes, and a note on what was converted.

    Converting is saving and loading, as loading keeps some tensors (frequencies of rotary
    positions) precise.  A plain module's tensors are all cast.
    """
    if one.dtype == other.dtype:
        return one, other, []
    coarse = max(one.dtype, other.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    pair = []
    for each in (one, other):
        try:
            pair.append(each if each.dtype == coarse else variants.in_dtype(each, coarse))
        except Missing as missing:
            raise BadInput(
                f"{each.name}: cannot be converted to {dtype_name(coarse)}, in which the other "
                f"model is ({missing})"
            ) from missing
    finer = one if one.dtype != coarse else other
    note = (
        f"{finer.name} is in {dtype_name(finer.dtype)} and was converted to {dtype_name(coarse)}, "
        "the other's dtype, for the comparison of rows; next tokens are those of the two as given"
    )
    return pair[0], pair[1], [note]


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
            each.reach = self.profile.reach
        self.prompts = prompts(self.one, self.other, self.profile, self.seed)
        self.way, why = divergence.NONE, "logits alone were asked for"
        if self.with_states:
            self.way, why = divergence.common_states(self.one, self.other, self.prompts[0])
        compared = f"compared: logits, and {divergence.WAYS[self.way]}"
        if self.way == divergence.NONE:
            compared = f"compared: logits alone ({why})"
        self.outcome.notes.append(compared)
        self.alike = type(self.one.model) is type(self.other.model)

    @property
    def tolerance(self) -> Tolerance:
        """That of the coarser precision in which the two compute."""
        kinds = {precision.working(each) for each in (self.one, self.other)}
        return TOLERANCES[max(kinds, key=lambda dtype: torch.finfo(dtype).eps)]

    def rows(self, subject: Subject, ids: Tensor) -> Rows:
        """The compared rows of a pass."""
        return divergence.rows(subject, ids, self.way)

    # -- the two comparisons --------------------------------------------------------------------

    def as_run(self) -> Result:
        """The rows of both as they run, each as near to float64 as the other's."""
        try:
            level = Level(
                self,
                AS_RUN,
                self.tolerance,
                (self.one, self.other, self.other.oracle),
                self.other,
            )
        except Missing as missing:
            return self._without(AS_RUN, Verdict.INCONCLUSIVE, str(missing))
        return level.settle()

    def in_float64(self) -> Result:
        """The float64 copies of both."""
        if self.other.dtype == torch.float64:
            why = "the models run in float64 themselves"
            return self._without(IN_FLOAT64, Verdict.NOT_APPLICABLE, why)
        dtype = torch.float32
        if self.other.dtype != dtype and not same_numbers(self.one, self.other):
            dtype = self.other.dtype
            self.outcome.notes.append(
                "the weights are not the same numbers: in float64, too, the bound is that of "
                f"{dtype_name(dtype)}, to which they are rounded"
            )
        try:
            models = self.one.oracle, self.other.oracle, self.other.oracle
        except Missing as missing:
            return self._without(IN_FLOAT64, Verdict.NOT_APPLICABLE, str(missing))
        return Level(
            self, IN_FLOAT64, TOLERANCES[dtype], models, self.other.oracle, dtype
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
            divergence.rounding_to(subject, self.rounded),
            divergence.moved_tables(subject, torch.float32),
        ):
            return self.comparison.rows(subject, ids)

    def elsewhere(self, ids: Tensor) -> list[Rows]:
        """The plain path as other machines round it, and with tables made otherwise."""
        exact = self.tolerance == TOLERANCES[torch.float64]
        with divergence.moved_tables(self.models[1], torch.float64 if exact else torch.float32):
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
        tried, unsettled = 0, 0
        broken: tuple[Broken, Tensor] | None = None
        result = self._result(Verdict.INCONCLUSIVE, "")
        for ids in self.comparison.prompts:
            tried += 1
            try:
                found = self.same(self.reference(ids), self.comparison.rows(self.models[0], ids))
            except Unsettled as error:
                unsettled += 1
                result = replace(result, reason=str(error))
                continue
            except ENDS as error:
                why = shortage(error) or brief(error)
                reason = f"ids {[*ids.shape]} cannot be run by both ({why})"
                return replace(result, reason=reason, examples=tried)
            if found is not None:
                broken = found, ids
                break
        observed, allowed = self.check.observed, self.check.allowed
        control = self.control()
        details: dict[str, Any] = {"controls": {}, "moved weight": control and control.as_json()}
        seen = control is not None and control.by is not None
        details["controls"]["one weight moved"] = {
            "says": "no weight to move" if control is None else str(control),
            "rejected": int(seen),
            "tried": int(control is not None),
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
        elif unsettled == tried:
            pass
        elif not seen:
            what = "there is no weight to move" if control is None else str(control)
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
        text = " ".join(map(str, ids[0].tolist()))
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
        """Whether the model's outputs differ on any prompt, whatever the blocks' do."""
        for ids in self.comparison.prompts:
            expected, observed = self.reference(ids), self.comparison.rows(self.models[0], ids)
            names = [name for name in observed.tensors if name in divergence.OUTPUTS]
            gaps = [name for name in expected.oracle.tensors if name == "router gap"]
            only = Reference(
                expected.plain.only(*names),
                expected.oracle.only(*names, *gaps),
                lambda e=expected, n=names: [rows.only(*n) for rows in e.elsewhere()],
            )
            try:
                if self.same(only, observed.only(*names)) is not None:
                    return True
            except Unsettled:
                continue
        return False

    def locate(self, ids: Tensor) -> Divergence | None:
        """The first block and module whose results differ for ids [1, n]."""
        one, plain, exact = self.models
        expected, observed = self.reference(ids), self.comparison.rows(one, ids)
        settled = expected.settled(ROUTER_GAP * self.tolerance.floor)
        states = {n: t for n, t in expected.oracle.tensors.items() if n.startswith(STATE)}
        apart = divergence.first_apart(
            observed.tensors, expected.plain.tensors, states, self.tolerance, settled
        )
        first = int(apart.name.removeprefix(STATE)) if apart else 0
        names = divergence.block_names(self.comparison.other)
        calls = []
        for subject in (one, plain, exact):
            with divergence.recorded(subject, *ids.shape) as found:
                self.plain(ids) if subject is plain and self.rounded else self.comparison.rows(
                    subject, ids
                )
            calls.append(found)
        place = divergence.locate(*calls, self.tolerance, names, first, settled)
        if place is not None or apart is None:
            return place
        name = names[first - 1] if 0 < first <= len(names) else ""
        return Divergence(first, len(states) - 1, name, "", "", apart.observed, apart.allowed)

    # -- the control ----------------------------------------------------------------------------

    def control(self) -> Moved | None:
        """One weight of the model compared with, moved until it is told apart; None: no weight."""
        ids = max(self.comparison.prompts, key=lambda each: each.shape[1])
        expected = self.reference(ids)
        last = None
        for name, weight in control_weights(self.moves):
            index, typical = _largest(weight)

            def told_apart(
                size: float, weight: Tensor = weight, index: int = index, typical: float = typical
            ) -> bool:
                check = Check(self.check.subject)
                with moved(weight, index, size * LARGEST_MOVE * typical):
                    observed = self.comparison.rows(self.moves, ids)
                try:
                    check.same(expected, observed, self.tolerance)
                except Broken:
                    return True
                except Unsettled:
                    return False
                return False

            size = sensitivity.smallest_size(told_apart)
            place = tuple(int(i) for i in np.unravel_index(index, tuple(weight.shape)))
            by = size * LARGEST_MOVE * typical if np.isfinite(size) else None
            last = Moved(name, place, by, typical)
            if by is not None:
                break
        return last


def control_weights(subject: Subject) -> list[tuple[str, Tensor]]:
    """Weights to move for the control, in the order to try: matrices of the middle block first."""
    stack = divergence.block_names(subject)
    middle = f"{stack[len(stack) // 2]}." if stack else ""
    found = []
    for name, weight in subject.model.named_parameters():
        stored = weight.data.stored if isinstance(weight.data, Upcast) else weight.data
        if stored.is_floating_point() and stored.ndim >= 2 and stored.numel():
            found.append((name.removeprefix("inner."), stored))
    found.reverse()  # the last matrix of a block writes to its output
    inside = [each for each in found if middle and each[0].startswith(middle)]
    others = [each for each in found if not (middle and each[0].startswith(middle))]
    return (inside + others)[:CANDIDATES]


def _largest(weight: Tensor) -> tuple[int, float]:
    """The flat index of the largest element, and the root of the mean square."""
    flat = weight.detach().reshape(-1)
    typical = float(flat.double().square().mean().sqrt())
    return int(flat.abs().argmax()), typical or 1.0


@contextmanager
def moved(weight: Tensor, index: int, by: float) -> Iterator[None]:
    """``weight`` with the element of that flat index moved, within a block."""
    place = tuple(int(i) for i in np.unravel_index(index, tuple(weight.shape)))
    with torch.no_grad():
        before = weight[place].clone()
        weight[place] = before + by
        try:
            yield
        finally:
            weight[place] = before


def describe(
    outcome: Parity, one: Subject, other: Subject, profile: Profile, seed: int
) -> RunRecord:
    """The record of the run for evidence and JSON, with both models; details join the results."""
    names = [one.name, other.name if other.name != one.name else f"{other.name} (against)"]
    options = Options(str(one.device), dtype_name(one.dtype), attends=one.attends)
    run = runs.describe_run(options, profile.name, seed)
    run.dtype = ", ".join(dict.fromkeys(dtype_name(each.dtype) for each in (one, other)))
    for name, subject in zip(names, (one, other), strict=True):
        run.subjects[name] = runs.describe_subject(subject, profile.brake)
    for result in outcome.results:
        result.details["against"] = names[1]
        result.details["notes"] = outcome.notes
        result.details["unequal tensors"] = outcome.unlike[:MOST_UNLIKE]
        if outcome.distributions is not None:
            result.details["next tokens"] = outcome.distributions.as_json()
    run.finished, run.exit = runs.now(), outcome.exit
    return run


# -- prompts, weights, next tokens ----------------------------------------------------------------


def prompts(one: Subject, other: Subject, profile: Profile, seed: int) -> list[Tensor]:
    """Batches of two prompts of random ids [2, n]: one for each example of the profile.

    The first is the longest, the second the shortest; half of the others have a length at which
    one of the models begins to compute otherwise (a window, a chunk).
    """
    draws = Draws(seed, NUMBER, range(profile.examples))
    least = max(each.shortest for each in (one, other))
    limits = [each.context for each in (one, other) if each.context is not None]
    most = max(least, min([LONG, *limits]))
    usual = max(least, min(most, *(usual_longest(each) for each in (one, other))))
    at_edges = sorted({n for each in (one, other) for n in edges.around(each, least, most)})
    batches = []
    for i in draws:
        generator = draws.generator(i, "length")

        def chosen(count: int, generator: torch.Generator = generator) -> int:
            return int(torch.randint(count, (), generator=generator))

        n = least + chosen((usual if i % ONE_LONG_IN else most) - least + 1)
        if i % 2 and at_edges:
            n = at_edges[chosen(len(at_edges))]
        n = most if i == 0 else least if i == 1 else n
        batches.append(random_ids(other, 2, n, draws.generator(i, "ids")))
    return batches


def random_ids(subject: Subject, batch: int, n: int, generator: torch.Generator) -> Tensor:
    """Ids [batch, n] of text, on the CPU."""
    numbers = torch.randint(subject.vocabulary, (batch, n), generator=generator)
    return subject.content(numbers.to(subject.device)).cpu()


def same_numbers(one: Subject, other: Subject) -> bool:
    """Whether the weights of both are the same numbers, whatever their names and shapes.

    By a sum over hashes of their bits, so a fused or a transposed matrix is the same.
    """
    return _fingerprint(one) == _fingerprint(other)


def _fingerprint(subject: Subject) -> tuple[int, int]:
    count, total = 0, 0
    for weight in subject.model.parameters():
        if not weight.is_floating_point():
            continue
        for part in weight.detach().reshape(-1).split(1 << 22):
            bits = part.double().view(torch.int64)
            bits = (bits ^ (bits >> 29)) * -4658895280553007687  # odd, from splitmix64
            bits = (bits ^ (bits >> 32)) * -7723592293110705685
            total = (total + int((bits ^ (bits >> 29)).sum())) % 2**64
        count += weight.numel()
    return count, total


def unlike_weights(one: Subject, other: Subject) -> list[str]:
    """Parameters and buffers of the same name in both that are not equal, each in a line."""
    mine = dict(_tensors(one))
    lines = []
    for name, theirs in _tensors(other):
        own = mine.get(name)
        if own is None:
            continue
        if own.shape != theirs.shape:
            lines.append(f"{name}: {[*own.shape]} and {[*theirs.shape]}")
            continue
        apart = (own.double().cpu() - theirs.double().cpu()).abs()
        if apart.numel() and float(apart.max()) != 0.0:
            many = int((apart != 0).sum())
            lines.append(f"{name}: {many} of {apart.numel()} numbers, by {float(apart.max()):.2g}")
    return lines


def _tensors(subject: Subject) -> Iterator[tuple[str, Tensor]]:
    model = subject.model
    base = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            if tensor.is_floating_point():
                yield name.removeprefix("inner.").removeprefix(base), tensor.detach()


def distributions(
    one: Subject, other: Subject, profile: Profile, seed: int
) -> Distributions | None:
    """The next-token distributions of both on random ids; None where they return no logits."""
    draws = Draws(seed, NUMBER, range(profile.draws))
    least = max(each.shortest for each in (one, other))
    limits = [each.context for each in (one, other) if each.context is not None]
    usual = min(usual_longest(each) for each in (one, other))
    n = max(least, min([CONTINUED, usual, *limits]))
    apart, agree = [], []
    at_once = max(1, min(8, SCORES_AT_ONCE // (n * one.vocabulary)))
    for first in range(0, len(draws), at_once):
        some = range(first, min(first + at_once, len(draws)))
        ids = torch.cat([random_ids(other, 1, n, draws.generator(i, "next")) for i in some])
        pair = []
        for each in (other, one):
            found = divergence.rows(each, ids, divergence.NONE).tensors.get("logits")
            if found is None:
                return None
            # Some models mask tokens with minus infinity, whose difference is no number.
            pair.append(found.double().clamp_min(MASKED).log_softmax(-1))
        apart.append(kl(*(each.flatten(0, 1) for each in pair)).numpy())
        agree.append((pair[0].argmax(-1) == pair[1].argmax(-1)).double().mean(1).numpy())
    return Distributions(np.concatenate(apart), np.concatenate(agree))
