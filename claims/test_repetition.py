"""Whether greedy text repeats itself, and what helps against it (document 003)."""

from __future__ import annotations

from fixtures import texts
from harness import generation, measures
from harness.findings import Bound, finding
from harness.memo import memo
from harness.statistics import mean

START = 32
"""Tokens of held-out text that are continued."""

TOKENS = 100
"""Tokens that are generated."""

DRAWS = 64
"""Continuations: beam search takes a second for each."""

NEEDS = ["trained", "generation", "cache", "lm-head", "tokenizer"]


@finding(
    "E23",
    "greedy text repeats itself more than text that people wrote",
    needs=NEEDS,
    source="003, after Welleck and Su",
    bound=Bound(mean, above=0.0),
    control="other held-out text in the place of the generated one: about 0",
    control_bound=Bound(mean, at_least=-0.05, at_most=0.05),
    draws=DRAWS,
    most=DRAWS,
)
def test_greedy_text_repeats_itself(subject, draws, sample):
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        written = measures.repeated(prompt.ids[:, START:])
        generated = measures.repeated(continued(subject, prompt))
        sample.add(effect=generated - written, control=written.roll(1) - written)
        sample.add(greedy=generated, held_out=written)


@finding(
    "E23",
    "beams repeat less than greedy text",
    needs=NEEDS,
    source="003, after Welleck and Su",
    bound=Bound(mean, below=0.0),
    control="other held-out text against held-out text: about 0",
    control_bound=Bound(mean, at_least=-0.05, at_most=0.05),
    draws=DRAWS,
    most=DRAWS,
)
def test_beams_repeat_less_than_greedy_text(subject, draws, sample):
    add_difference(subject, draws, sample, num_beams=4)


@finding(
    "E23",
    "text generated under a repetition penalty repeats less than greedy text",
    needs=NEEDS,
    source="003, after Welleck and Su",
    bound=Bound(mean, below=0.0),
    control="other held-out text against held-out text: about 0",
    control_bound=Bound(mean, at_least=-0.05, at_most=0.05),
    draws=DRAWS,
    most=DRAWS,
)
def test_a_penalty_repeats_less_than_greedy_text(subject, draws, sample):
    add_difference(subject, draws, sample, repetition_penalty=1.2)


def add_difference(subject, draws, sample, **how):
    """Add repetition under ``how`` less that of greedy text, from the same beginnings."""
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        written = measures.repeated(prompt.ids[:, START:])
        greedy = measures.repeated(continued(subject, prompt))
        other = measures.repeated(continued(subject, prompt, **how))
        sample.add(effect=other - greedy, control=written.roll(1) - written)
        sample.add(greedy=greedy, other=other)


def continued(subject, prompt, **how):
    """`TOKENS` tokens after the first `START` of each prompt: ids [batch, tokens].

    Greedy text is kept: three claims look at the same.
    """
    kept = greedy_texts(subject)
    key = (prompt.draws.seed, *prompt.draws)
    if how or key not in kept:
        text = generation.continued(subject, prompt.ids[:, :START], TOKENS, **how)
        if how:
            return text
        kept[key] = text
    return kept[key]


@memo
def greedy_texts(subject):
    """The subject's greedy texts by seed and numbers of the draws."""
    return {}
