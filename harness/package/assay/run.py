"""Checking a model that is in memory: in a training loop, a notebook, a test of one's own."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from assay.harness.checking.cases import Case
from assay.harness.checking.claim import Session, is_asked, unknown
from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.cli.main import cases_of_claims
from assay.harness.models import digests, meant, runs
from assay.harness.models.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Result, Verdict

KINDS = {"laws": ("law",), "findings": ("finding",), "all": ("law", "finding")}
"""Names of groups of claims."""


class Refuted(AssertionError):
    """Claims that were refuted, each with its counterexample."""


@dataclass
class Run:
    """The results of a check, in the order of the claims' numbers.

    ``run`` describes the run as the JSON report does: versions, device, profile, seed, model.
    """

    results: list[Result]
    run: dict[str, Any]
    digest: str = field(repr=False, default="")

    def _with(self, verdict: Verdict) -> list[Result]:
        return [result for result in self.results if result.verdict is verdict]

    @property
    def upheld(self) -> list[Result]:
        """The results of claims that hold."""
        return self._with(Verdict.UPHELD)

    @property
    def refuted(self) -> list[Result]:
        """The results of claims that do not hold."""
        return self._with(Verdict.REFUTED)

    @property
    def inconclusive(self) -> list[Result]:
        """The results of claims that were not decided."""
        return self._with(Verdict.INCONCLUSIVE)

    def require(self) -> Run:
        """Return the run; raise `Refuted`, with counterexamples, if a claim was refuted."""
        if self.refuted:
            raise Refuted("\n\n".join(map(_told, self.refuted)))
        return self

    def save(self, path: str | Path) -> None:
        """Add the run to an evidence file, which is made if need be.  Raises `BadInput`."""
        with Evidence.open(path) as evidence:
            evidence.begin(self.run)
            for result in self.results:
                evidence.record(self.run["id"], result, self.digest)
            evidence.finish(self.run["id"], int(bool(self.refuted)))

    def __str__(self) -> str:
        counts = Counter(result.verdict.value for result in self.results)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        rows = [
            (each.id, each.name, each.verdict.value, _told(each) if each in self.refuted else "")
            for each in self.results
            if each.verdict is not Verdict.NOT_APPLICABLE
        ]
        cells = (
            "".join(f"<td><pre>{html.escape(cell)}</pre></td>" for cell in row) for row in rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<p>{html.escape(str(self))}</p><table>{body}</table>"


def check(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    claims: str | Sequence[str] = "laws",
    profile: str = "quick",
    seed: int = 0,
    attends: str | None = None,
    name: str = "model",
) -> Run:
    """Check claims on ``model`` as it is, on its own device and in its own dtype.

    ``claims`` are ``laws``, ``findings``, ``all``, or numbers such as ``["C1", "C2"]``
    (``ID:TEXT`` for the variants whose name holds the text).  ``profile`` is ``glance``,
    ``quick``, ``standard`` or ``thorough``, ``attends`` ``causal`` or ``both`` where class and
    configuration do not say.
    The model is in evaluation mode meanwhile and then as it was, gradients included.

    Raises `BadInput` for arguments that cannot be used.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=64,
    ...     num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
    ... )
    >>> run = check(LlamaForCausalLM(config), claims=["C1"], profile="glance")
    >>> run.require().results[0].verdict.value
    'upheld'
    """
    check_profile(profile)
    if attends not in (None, *meant.WAYS):
        raise BadInput(f"attends {attends!r}: choose from {', '.join(meant.WAYS)}")
    chosen = _chosen(claims)
    with _evaluated(model), torch.random.fork_rng(devices=[]):
        digest = digests.of(model)
        subject = Subject(name, model, tokenizer, digest, attends=attends)
        if (said := meant.of(subject)).ways is None:
            raise BadInput(f"{name}: {said.why.replace('--', '')}")
        dtype = str(model.dtype).removeprefix("torch.")
        options = Options(str(model.device), dtype, attends=attends)
        run = runs.describe_run(options, profile, seed)
        session = Session(PROFILES[profile], seed)
        results = [case.settle(subject, session) for case in chosen]
        run["subjects"][name] = runs.describe_subject(subject)
    made = Run(results, run, digest)
    run |= {"finished": runs.now(), "exit": int(bool(made.refuted))}
    return made


def _chosen(claims: str | Sequence[str]) -> list[Case]:
    """The cases about models that are asked for; raises `BadInput`."""
    cases = [case for case in cases_of_claims() if not case.claim.toy]
    if isinstance(claims, str) and claims in KINDS:
        return [case for case in cases if case.claim.kind.value in KINDS[claims]]
    asked = [claims] if isinstance(claims, str) else list(claims)
    named = [(case.claim, case.name) for case in cases]
    if not asked or (why := unknown(asked, named, "claim")):
        raise BadInput(why if asked else f"claims: name some, or one of {', '.join(KINDS)}")
    return [case for case in cases if any(is_asked(each, case.claim, case.name) for each in asked)]


@contextmanager
def _evaluated(model: PreTrainedModel) -> Iterator[None]:
    """The model in evaluation mode with frozen parameters, and afterwards as it was."""
    training = {module: module.training for module in model.modules()}
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        model.eval().requires_grad_(False)
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
        for parameter, gradient in wanted.items():
            parameter.requires_grad_(gradient)


def _told(result: Result) -> str:
    """A refuted claim in lines: what, where, and on which inputs."""
    seen = result.counterexample or {}
    inputs = [f"  {label}: {value}" for label, value in (seen.get("inputs") or {}).items()]
    return "\n".join([f"{result.id}: {result.name}: {result.reason}", *inputs])
