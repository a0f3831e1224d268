"""An engine's scores beside those of the model that it serves, and of what it samples."""

from __future__ import annotations

from collections import Counter

import numpy as np

from assay.fixtures.engines import random_requests
from assay.harness.checking.bounds import Bound
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import share
from assay.harness.engines import middle, parity
from assay.harness.engines.interface import PROCESSED, Sampling
from assay.harness.models.machine.devices import dtype_name
from assay.harness.operations.parity.next_tokens import Distributions
from assay.harness.results.errors import Missing

PROMPT, TOKENS = 6, 32
"""Tokens of a prompt, and of a text that the engine samples."""

ROOM = 8
"""Positions of a context that stay free."""

TOGETHER = 8
"""Requests of one pass of the model."""


@finding(
    "I9",
    "an engine's scores differ from the model's float64 by what its types explain",
    needs=["engine-scores", "engine-model"],
    source="beyond the documents; trl#6789, vllm#38966",
    bound=Bound(share, at_least=0.75),
    control="the model's scores where the first token is another",
    costly=True,
)
def test_scores_differ_from_the_models_by_what_types_explain(subject, draws, sample):
    model, engine = subject.against, subject.engine
    length = min(engine.longest, (engine.context or 2 * engine.longest) - ROOM)
    divergences, agree, worst, off = [], [], (-1.0, ""), Counter[str]()
    for ids, each in _beside(subject, random_requests(subject, draws, length)):
        sample.add(effect=not each.off, control=each.passes, **each.recorded)
        for name, (error, most) in each.judged.items():
            sample.add(**{name: error, f"{name}, allowed": most})
        off.update(each.off)
        if each.observed.tokens is None:
            divergences.append(parity.divergence(each.exact, each.observed))
            first = each.observed.at(0, each.exact.end).values.argmax(1)
            same = first == each.exact.values.argmax(1)
            agree.append(float(same.mean()))
            at = int(divergences[-1].argmax())
            text = " ".join(model.tokens(ids[: at + 1])[-ROOM:])
            worst = max(worst, (float(divergences[-1][at]), f"position {at}, after {text}"))
    if off:
        sample.details["off"] = {
            name: f"on {n} of {len(draws)} prompts" for name, n in off.items()
        }
    if divergences:
        both = Distributions(np.concatenate(divergences), np.asarray(agree)).as_json()
        sample.details |= {**both, "worst position": f"{worst[1]}: KL {worst[0]:.3g}"}
    if rows := parity.lines(sample.details):
        sample.table("The engine beside the model", ["what", "is"], rows)


def _beside(subject, requests):
    """Requests and the engine beside the model on each, several in one pass of the model.

    Those are left out where routers of experts decide by near-ties from the first token on.
    """
    for start in range(0, len(requests), TOGETHER):
        some = requests[start : start + TOGETHER]
        others = [[(ids[0] + 1) % subject.vocabulary, *ids[1:]] for ids in some]
        answers = parity.beside(subject, subject.against, some, others)
        yield from ((ids, each) for ids, each in zip(some, answers, strict=True) if each)


@finding(
    "I9",
    "rollouts of an engine are as probable to the model in the dtype that it is trained in",
    needs=["engine-generation", "engine-generated-scores", "engine-model"],
    source="beyond the documents; trl#4772, verl#2996",
    bound=Bound(share, at_least=0.75),
    control="the log-probabilities of the tokens before",
    costly=True,
)
def test_rollouts_of_an_engine_are_as_probable_to_the_model(subject, draws, sample):
    if subject.engine.reports == PROCESSED:
        raise Missing(
            "engine-generated-scores: they are processed, which a trainer cannot compare"
        )
    prompts = random_requests(subject, draws, PROMPT)
    tokens = min(TOKENS, (subject.engine.context or 2 * TOKENS) - PROMPT)
    answers = subject.generate(prompts, Sampling(tokens, seed=draws.seed))
    trained, sampled = [], []
    for ids, text in zip(prompts, answers, strict=True):
        if text.scores is None:
            raise Missing("engine-generated-scores: it gives none for the text that it generates")
        (rows,) = middle.of_model(subject.against, [[*ids, *text.ids]], subject.engine)
        trained.append(rows.at(len(ids) - 1, rows.end - 1).of(text.ids))
        sampled.append(text.scores.of(text.ids))
        for name, theirs in (("effect", sampled[-1]), ("control", np.roll(sampled[-1], 1))):
            beyond = np.abs(np.exp(trained[-1] - theirs) - 1.0) > parity.CLIP
            sample.add(**{name: bool(beyond.mean() <= parity.FEW)})
    sample.details |= {
        "dtype of the model": dtype_name(subject.against.dtype),
        **parity.ratios(trained, sampled),
    }
    sample.table("Rollouts", ["what", "is"], parity.lines(sample.details))
