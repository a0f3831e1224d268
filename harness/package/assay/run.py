"""Checks a model in memory: in a training loop, a notebook, or a test."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from assay.harness.checking import catalogue
from assay.harness.checking.cases import Case, of_test
from assay.harness.checking.catalogue import is_asked, unknown
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import PROFILES, Profile, check_profile
from assay.harness.cli.main import cases_of_claims, load, offer, open_engine, served_by
from assay.harness.engines.interface import Engine
from assay.harness.models.loading import digests, runs, tokenizers
from assay.harness.models.loading.admission import admit
from assay.harness.models.loading.runs import Options
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject import Subject, meant
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.report.texts import clipped
from assay.harness.results import expectation_files
from assay.harness.results.errors import BadInput, brief
from assay.harness.results.evidence import Evidence
from assay.harness.results.expectations import Expectations, Lacks, judge, judge_result
from assay.harness.results.records import RunRecord
from assay.harness.results.seeds import read_seed
from assay.harness.results.specs import ModelKind
from assay.harness.results.verdicts import Result, Verdict

KINDS = {"laws": ("law",), "findings": ("finding",), "all": ("law", "finding")}
"""Names of groups of claims."""


class Refuted(AssertionError):
    """Claims that were refuted, each with its counterexample."""


class Undecided(AssertionError):
    """Laws that were not decided, each with the reason; not a pass."""


class Lacking(AssertionError):
    """Capabilities that the model's class has and the model lacks, so that claims do not apply."""


@dataclass
class Run:
    """The results of a check, in the order of the claims' numbers.

    ``run`` describes the run as the JSON report does: versions, device, profile, seed, model.
    """

    results: list[Result]
    run: RunRecord
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
    def unexpected(self) -> list[Result]:
        """Those of `refuted` for which no known defect of the library is the reason."""
        return [result for result in self.refuted if result.expected is None]

    @property
    def inconclusive(self) -> list[Result]:
        """The results of claims that were not decided."""
        return self._with(Verdict.INCONCLUSIVE)

    @property
    def undecided(self) -> list[Result]:
        """The results of laws that were not decided, for which a run of pytest fails, too."""
        return [each for each in self.inconclusive if judge(each, None).fails]

    @property
    def exit(self) -> int:
        """The exit code that pytest would return: 0 where `require` raises nothing, 5 where no
        claim applied, else 1.
        """
        if self.unexpected or self.undecided or self.lacking:
            return 1
        return 5 if self.nothing_examined else 0

    @property
    def nothing_examined(self) -> bool:
        """Whether no claim applied to the model."""
        return all(each.verdict is Verdict.NOT_APPLICABLE for each in self.results)

    @property
    def lacking(self) -> list[str]:
        """Capabilities that models of this class have and this one lacks, in a line each.

        A claim that needs such a capability does not apply, so a model that ignores an input would
        take the laws about that input away with it.
        """
        return [
            line
            for name, subject in self.run.subjects.items()
            for line in Lacks({}, name, subject.recorded, self.run.dtype, self.results).unexpected
        ]

    def require(self) -> Run:
        """Return the run if no claim was refuted but by known defects of the library, every law
        was decided, and nothing is lacking.

        Raises `Refuted`, with counterexamples, `Undecided`, or `Lacking`.
        """
        if self.unexpected:
            raise Refuted("\n\n".join(map(describe, self.unexpected)))
        if self.undecided:
            raise Undecided("\n".join(f"{e.id}: {e.name}: {e.reason}" for e in self.undecided))
        if self.lacking:
            raise Lacking("\n".join(self.lacking))
        if self.nothing_examined:
            raise Lacking("no claim was examined: none of them applies to the model")
        return self

    def save(self, path: str | Path) -> None:
        """Add the run to an evidence file, created if missing.  Raises `BadInput`."""
        with Evidence.open(path) as evidence:
            evidence.add(self.run, self.results, self.digest, self.exit)

    def __str__(self) -> str:
        counts = Counter(result.verdict.value for result in self.results)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        applied = [each for each in self.results if each.verdict is not Verdict.NOT_APPLICABLE]
        broken = {id(each): describe(each) for each in self.unexpected}
        rows = [(e.id, e.name, e.verdict.value, broken.get(id(e), "")) for e in applied]
        cells = (
            "".join(f"<td><pre>{html.escape(cell)}</pre></td>" for cell in row) for row in rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<p>{html.escape(str(self))}</p><table>{body}</table>"


def engine(name: str, what: str = "") -> Engine:
    """The engine ``name`` on ``what``, as ``engine:NAME:WHAT`` names it; raises `BadInput`."""
    return open_engine(name, what)


def check(
    model: nn.Module | Callable[..., Any] | Engine | str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    claims: str | Sequence[str | Callable[..., None]] = "laws",
    profile: str = "quick",
    seed: int = 0,
    attends: str | None = None,
    name: str = "model",
    replay: str | None = None,
    against: str | Path | None = None,
) -> Run:
    """Check claims on ``model`` as it is, on its own device and in its own dtype.

    ``model`` is a model of transformers, a plain module, or a function from ids [batch, n] to
    logits [batch, n, vocabulary]; or the name of one, as `assay check` takes it: a folder, a model
    of the hub, ``tiny:llama``.  That is loaded with its own tokenizer, in its own dtype.
    Or it is an engine, ``engine("llama.cpp", "model.gguf")``, which should agree with the model
    ``against``; the claims are then those about engines.
    ``claims`` are ``laws``, ``findings``, ``all``, or numbers such as ``["C1", "C2"]``
    (``ID:TEXT`` for the variants whose name holds the text), and functions that `assay.law` or
    `assay.finding` declares.
    ``profile`` is ``glance``, ``quick``, ``standard`` or ``thorough``, ``attends`` ``causal`` or
    ``both`` where class and configuration do not say.  ``replay`` is the blob of a counterexample,
    which is then the only example tried: ``result.counterexample.blob`` of a refuted law.
    The model is in evaluation mode meanwhile; then its state is restored, gradients included.
    A claim ends undecided at the first pass that returns after the profile's ``brake``.

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
    for what, value in (("name", name), ("replay", "" if replay is None else replay)):
        if not isinstance(value, str):
            raise BadInput(f"{what} {value!r}: is no text")
    if attends not in (None, *meant.WAYS):
        raise BadInput(f"attends {attends!r}: choose from {', '.join(meant.WAYS)}")
    served = isinstance(model, Engine) or str(model).startswith(f"{ModelKind.ENGINE}:")
    if against is not None and not served:
        raise BadInput(f"against {str(against)!r}: is for engines; compare_models compares models")
    named = isinstance(claims, str) or not isinstance(claims, Sequence)
    functions = [] if named else [each for each in claims if hasattr(each, "claim")]
    chosen = [case for each in functions for case in of_test(each)]
    others: Any = [each for each in claims if each not in functions] if functions else claims
    if others or not functions:
        slow = PROFILES[profile].slow
        chosen = [*choose(others, slow=slow, about_engines=served), *chosen]
    session = Session(PROFILES[profile], read_seed(str(seed), "seed"), replay)
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise BadInput(f"{model}: is loaded with its own tokenizer")
        subject = load(str(model), Options(attends=attends, against=_text(against)))
    elif isinstance(model, Engine):
        subject = served_by(name if name != "model" else "engine", model, _text(against))
    else:
        subject = subject_of(model, tokenizer, attends, name, session.profile)
    return settle(subject, chosen, session)


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def subject_of(
    model: nn.Module | Callable[..., Any],
    tokenizer: PreTrainedTokenizerBase | None,
    attends: str | None,
    name: str,
    profile: Profile,
) -> Subject:
    """The model as claims see it; raises `BadInput` where it cannot be checked.

    A model whose first passes take longer than the profile's ``brake`` cannot.
    """
    wrapped = wrap(name, model)
    tokenizers.check_kind(name, tokenizer)
    if any(each.is_meta for each in wrapped.parameters()):
        raise BadInput(f"{name}: has parameters on the meta device, without values")
    if any(each.is_inference() for each in wrapped.parameters()):
        raise BadInput(
            f"{name}: its parameters were made under torch.inference_mode, where nothing has a "
            "gradient and nothing can be saved; make the model outside of it"
        )
    clock = ForwardClock(profile.brake)
    try:
        subject = Subject(
            *(name, wrapped, tokenizer, digests.digest(wrapped)), settings=SubjectSettings(attends)
        )
        with evaluated(wrapped), clock.watching(subject):
            admit(subject)
            subject.offer = offer(subject)
            return subject
    except BadInput as error:
        said = re.sub(r"--(attends)=(\w+)", r'\1="\2"', str(error))  # as an argument of Python
        raise BadInput(said) from error.__cause__
    except Braked as error:
        raise BadInput(f"{name}: cannot run a prompt ({error})") from error
    except ENDS as error:
        raise BadInput(f"{name}: cannot be read ({brief(error)})") from error


def settle(subject: Subject, cases: Sequence[Case], session: Session) -> Run:
    """Check ``cases`` on a subject; its model's state is restored."""
    model = subject.model
    with evaluated(model), torch.random.fork_rng(devices=[]):
        dtype = str(model.dtype).removeprefix("torch.")
        options = Options(str(model.device), dtype, attends=subject.settings.attends)
        run = runs.describe_run(options, session.profile.name, session.seed or 0)
        results = [_judged(case.settle(subject, session), subject) for case in cases]
        run.subjects[subject.name] = runs.describe_subject(subject, session.profile.brake)
    outcome = Run(results, run, subject.digest)
    run.finished, run.exit = runs.now(), outcome.exit
    return outcome


def _judged(result: Result, subject: Subject) -> Result:
    """The result with what expects it: a defect that models of its type have, in most cases."""
    offered = subject.offer
    form = "" if isinstance(offered, str) else offered.form
    where = dtype_name(subject.dtype), subject.device.type
    judgement = judge_result(_expectations(), result, *where, form)
    return structs.replace(result, expected=judgement.foreseen)


@cache
def _expectations() -> dict[str, Expectations]:
    return expectation_files.load(catalogue.FOLDER / "expectations")


def choose(
    claims: str | Sequence[str], slow: bool = False, about_engines: bool = False
) -> list[Case]:
    """The cases about models, or ``about_engines``, that ``claims`` name; raises `BadInput`.

    A kind of claims includes slow claims only with ``slow``; a number names them too.
    """
    if isinstance(claims, str) and claims in KINDS:
        named = [case for case in _cases() if case.claim.kind.value in KINDS[claims]]
        named = [case for case in named if case.claim.about_engines == about_engines]
        return [case for case in named if slow or not case.claim.is_slow(case.name)]
    requested = [claims] if isinstance(claims, str) else claims
    if not isinstance(requested, Sequence) or not all(isinstance(each, str) for each in requested):
        raise BadInput(f"claims {claims!r}: give numbers such as ['C1', 'C2']")
    declared = [
        each for each in catalogue.claims() if not each.toy and each.about_engines == about_engines
    ]
    why = unknown(requested, [(each.id, name) for each in declared for name in each.names])
    if why or not requested:
        raise BadInput(f"claims: {why or 'name some, or one of ' + ', '.join(KINDS)}")
    cases = _cases(frozenset(catalogue.files(requested)))
    return [
        case
        for case in cases
        if any(is_asked(each, case.claim.id, case.name) for each in requested)
    ]


@cache
def _cases(files: frozenset[Path] | None = None) -> list[Case]:
    """The claims about models in these files, or in all."""
    return [case for case in cases_of_claims(files) if not case.claim.toy]


@contextmanager
def evaluated(model: PreTrainedModel) -> Iterator[None]:
    """The model in evaluation mode with frozen parameters; afterwards its state is restored.

    So are torch's default dtype and device, which are float32 and the processor meanwhile.
    """
    dtype = torch.get_default_dtype()
    modes = {module: module.training for module in model.modules()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval()
        for parameter in trained:
            parameter.requires_grad_(False)
        torch.set_default_dtype(torch.float32)
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
        for module, mode in modes.items():
            module.training = mode
        for parameter in trained:
            parameter.requires_grad_(True)


LONGEST = 400
"""Characters of a drawn input in a message; the result has all of them."""


def describe(result: Result) -> str:
    """A refuted claim in lines: its sentence, inputs, position and size of the difference."""
    lines = [f"{result.id}: {result.name}: {result.reason}"]
    if example := result.counterexample:
        lines += [f"  {clipped(line, LONGEST)}" for line in example.lines]
    return "\n".join(lines)
