"""Compares a model with a stored reference: the comparisons of two models, with rows of a file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from assay.harness.checking.check import Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.measures import kl
from assay.harness.checking.reference import Reference, run_elsewhere
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import TOLERANCES, Tolerance
from assay.harness.models.subject import Subject, meant
from assay.harness.models.subject.rows import Rows
from assay.harness.operations.parity import control, recording, tensors
from assay.harness.operations.parity.comparison import Level, Pair
from assay.harness.operations.parity.next_tokens import MASKED, Distributions
from assay.harness.operations.parity.outcome import AS_RUN, IN_FLOAT64, Parity, hidden_by_rounding
from assay.harness.operations.parity.recording import rows
from assay.harness.operations.parity.stored import OF, Stored, require_one_vocabulary
from assay.harness.results.errors import BadInput, Missing, brief
from assay.harness.results.quiet import quiet
from assay.harness.results.verdicts import Result, Verdict


def compare(one: Subject, stored: Stored) -> Parity:
    """Compare ``one`` with ``stored``; raises `BadInput` where the same ids cannot go to it."""
    about = stored.about
    require_one_vocabulary(one, stored)
    if (ways := meant.direction(one).ways) != about["attends"]:
        raise BadInput(
            f"{one.name} attends {ways}, and {stored.name} {about['attends']}: they cannot be "
            "the same"
        )
    try:
        with quiet():
            pair = StoredPair(one, stored)
            pair.outcome.results = hidden_by_rounding(pair.as_run(), pair.in_float64(), one)
            pair.outcome.distributions = pair.distributions()
            return pair.outcome
    except ENDS as error:  # from the model's own code
        raise BadInput(f"{one.name}: cannot run a prompt ({brief(error)})") from error


class StoredPair(Pair):
    """A model, and a stored reference in place of the other."""

    def __init__(self, one: Subject, stored: Stored) -> None:
        self.one = self.other = one
        self.stored, self.states, self.outcome = stored, False, Parity()
        self._own: dict[tuple[int, int], Rows] = {}
        most = one.context or max(each.ids.shape[1] for each in stored.prompts)
        fitting = [each for each in stored.prompts if one.shortest <= each.ids.shape[1] <= most]
        self.of = {id(each.ids): each for each in fitting}
        self.prompts = [each.ids for each in fitting]
        names = rows(one, self.prompts[0], False).tensors if fitting else {}
        common = [name for name in names if name in fitting[0].exact.tensors]
        if not common or any(names[n].shape[-1] != fitting[0].exact[n].shape[-1] for n in common):
            raise BadInput(f"{one.name}: no row is comparable with those of {stored.name}")
        notes = self.outcome.notes
        notes.append(
            "compared: outputs alone, as a file has no blocks; --against FOLDER names the module"
        )
        if left := len(stored.prompts) - len(fitting):
            notes.append(f"prompts: {left} of {len(stored.prompts)} do not fit {one.name}")

    def as_run(self) -> Result:
        """The rows as they run, as near to float64 as the reference model's in that dtype."""
        working = precision.working(self.one)
        key = None if self.one.dtype == torch.float64 else dtype_name(working)
        return self.judged(AS_RUN, self.one, working, key)

    def in_float64(self) -> Result:
        """The float64 copy of the model."""
        if self.one.dtype == torch.float64:
            why = "the model runs in float64 itself"
            return self.result(IN_FLOAT64, Verdict.NOT_APPLICABLE, why)
        dtype, key = torch.float32, dtype_name(torch.float64)
        if str(tensors.fingerprint(self.one)) != self.stored.about["weights"]:
            dtype = self.one.dtype
            key = key if dtype == torch.float32 else dtype_name(dtype)
            self.outcome.notes.append(
                "the weights are not the same numbers: the bound in float64 is that of "
                f"{dtype_name(dtype)}"
            )
        try:
            exact = reference_of(self.one)
        except Missing as missing:
            return self.result(IN_FLOAT64, Verdict.NOT_APPLICABLE, str(missing))
        return self.judged(IN_FLOAT64, exact, dtype, key)

    def judged(self, name: str, one: Subject, dtype: torch.dtype, key: str | None) -> Result:
        """Compare ``one`` within the tolerance of ``dtype``, and the model's errors in ``key``."""
        if key and not all(key in each.errors for each in self.of.values()):
            why = f"{self.stored.name} does not say how {key} rounds"
            return self.result(name, Verdict.NOT_APPLICABLE, why)
        return StoredLevel(self, name, TOLERANCES[dtype], one, key).judge()

    def own(self, one: Subject, ids: Tensor) -> Rows:
        """The rows of ``one`` at the kept positions of a prompt, computed once."""
        key = id(one), id(ids)
        if key not in self._own:
            self._own[key] = rows(one, ids, False).at(self.of[id(ids)].positions)
        return self._own[key]

    def distributions(self) -> Distributions | None:
        """The next-token distributions beside those of the file, as the model runs."""
        apart, agree = [], []
        for ids, each in zip(self.prompts, self.of.values(), strict=True):
            logits = self.own(self.one, ids).tensors.get("logits")
            if logits is None or "logits" not in each.exact.tensors:
                return None
            pair = [
                every[0].double().clamp_min(MASKED).log_softmax(-1)
                for every in (each.exact["logits"], logits)
            ]
            apart.append(kl(*pair))
            agree.append((pair[0].argmax(-1) == pair[1].argmax(-1)).double().mean())
        return Distributions(torch.cat(apart).numpy(), torch.stack(agree).numpy(), OF)


class StoredLevel(Level):
    """One of the comparisons, with the rows of a file in place of the other model's."""

    pair: StoredPair

    def __init__(
        self, pair: StoredPair, name: str, tolerance: Tolerance, one: Subject, key: str | None
    ) -> None:
        super().__init__(pair, name, tolerance, one, one, one)
        self.key = key
        self.kept: dict[int, tuple[Reference, Rows]] = {}

    def observed(self, ids: Tensor) -> Rows:
        """The rows at the kept positions."""
        return rows(self.one, ids, False).at(self.pair.of[id(ids)].positions)

    def sides(self, ids: Tensor) -> tuple[Reference, Rows]:
        """The reference, which may widen by what rounding changes in this model, and its rows."""
        if id(ids) in self.kept:
            return self.kept[id(ids)]
        own, stored = self.pair.own(self.one, ids), self.pair.of[id(ids)].expected(self.key)

        @functools.cache
        def elsewhere() -> Sequence[Rows]:
            with recording.moved_tables(self.one, _finer(self.tolerance)):
                other_tables = self.observed(ids)
            moved = [*run_elsewhere(lambda: self.observed(ids))(), other_tables]
            return [_shifted(stored.oracle, each, own) for each in moved]

        self.kept[id(ids)] = Reference(stored.plain, stored.oracle, elsewhere, elsewhere), own
        return self.kept[id(ids)]

    def difference(self, ids: Tensor, states: bool) -> Broken | None:
        """How the two differ on ids [1, n], if they do."""
        self.check.record.begin()
        return self.compare(self.check, *self.sides(ids))

    def smallest(self, ids: Tensor, broken: Broken) -> tuple[Tensor, Broken]:
        """The prompt up to the first kept position that shows the difference, and how."""
        expected, own = self.sides(ids)
        positions = self.pair.of[id(ids)].positions.tolist()
        for count, position in enumerate(positions, 1):
            part = slice(count)
            try:
                first = self.compare(Check(self.one), expected.at(part), own.at(part))
            except Unsettled:
                continue
            if first is not None:
                name = first.where.partition(",")[0].removesuffix(" in the median row; farthest")
                first.where = f"{name}, position {position}"
                causal = meant.direction(self.one).ways == meant.CAUSAL
                return ids[:, : position + 1] if causal else ids, first
        return ids, broken

    def locate(self, ids: Tensor) -> None:
        """Nowhere: a file has no modules."""

    def controlled(self, prompts: Sequence[Tensor]) -> tuple[str, bool, Any]:
        """One weight of the model moved, on the first of the ``prompts``, those with most rows
        and the shortest first, that rejects it; of a function, which has no weight, the row of
        the position before.
        """
        of = self.pair.of
        result: tuple[str, bool, Any] = "there is no prompt", False, None
        for ids in sorted(prompts, key=lambda each: (-len(of[id(each)].positions), each.shape[1])):
            expected, own = self.sides(ids)  # now, while no weight is moved
            if self.check.wide:
                expected.elsewhere()
            moved = control.smallest(self.one, functools.partial(self.rejects, ids))
            if moved is None:
                before = own.map(lambda tensor: tensor.roll(1, 1))
                says = "the row of the position before is rejected"
                return says, self.rejects(ids, before), None
            result = str(moved), moved.by is not None, moved.as_json()
            if moved.by is not None:
                break
        return result

    def rejects(self, ids: Tensor, observed: Rows | None = None) -> bool:
        """Whether rows are rejected that are as far off as ``observed`` ones, or those of the
        model as it is now, are from the model's own.
        """
        expected, own = self.sides(ids)
        changed = self.observed(ids) if observed is None else observed
        try:
            rows = _shifted(expected.oracle, changed, own)
            return self.compare(Check(self.one), expected, rows) is not None
        except Unsettled:
            return False


def _finer(tolerance: Tolerance) -> torch.dtype:
    """The dtype whose last place the numbers of tables may differ in."""
    return torch.float64 if tolerance == TOLERANCES[torch.float64] else torch.float32


def _shifted(exact: Rows, observed: Rows, own: Rows) -> Rows:
    """``exact`` rows as far off as ``observed`` rows are from the model's ``own``."""
    shifted = {}
    for name, mine in own.tensors.items():
        if name in exact.tensors and name != "router gap":
            other, mine = observed[name].double(), mine.double()
            # Some models mask tokens with minus infinity, whose difference is no number.
            shifted[name] = exact[name] + torch.where(other == mine, 0.0, other - mine)
    return Rows(shifted)
