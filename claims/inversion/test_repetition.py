"""Whether greedy text repeats itself, and what helps against it (document 003).

A text ends at its end token.  Two texts are compared over the length of the shorter one: a longer
text repeats more.
"""

from __future__ import annotations

import torch

from assay.fixtures import texts
from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import bounded_change, mean
from assay.harness.models.subject.memo import memo
from assay.harness.operations import contrastive, generation

START = 32
"""Tokens of held-out text before the continuation."""

TOKENS = 100
"""Tokens to generate, unless the text ends before."""

DRAWS = 32
"""Continuations: beam search takes a second for each."""

NEEDS = ["trained", "generation", "cache", "lm-head", "tokenizer"]

ABOUT_0 = Bound(mean, at_least=-0.05, at_most=0.05)


@finding(
    "E23",
    "greedy text repeats itself more than text that people wrote",
    needs=NEEDS,
    source="003, after Welleck and Su",
    bound=Bound(bounded_change, above=0.0),
    control="other held-out text in the place of the generated one: about 0",
    control_bound=ABOUT_0,
    draws=DRAWS,
    costly=True,
)
def test_greedy_text_repeats_itself(subject, draws, sample):
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        greedy, written = greedily(subject, prompt), prompt.ids[:, START:].tolist()
        add_difference(subject, prompt, sample, greedy=greedy, held_out=written)


@finding(
    "E23",
    "beams repeat less than greedy text",
    needs=NEEDS,
    source="003, after Welleck",
    bound=Bound(bounded_change, below=0.0),
    control="other held-out text against held-out text: about 0",
    control_bound=ABOUT_0,
    draws=DRAWS,
    costly=True,
    slow=True,
)
def test_beams_repeat_less_than_greedy_text(subject, draws, sample):
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        beams = generation.generate_texts(subject, prompt.ids[:, :START], TOKENS, num_beams=4)
        add_difference(subject, prompt, sample, beams=beams, greedy=greedily(subject, prompt))


@finding(
    "E23",
    "contrastive search repeats less than greedy text",
    needs=NEEDS,
    source="003, after Su (arXiv 2202.06417)",
    bound=Bound(bounded_change, below=0.0),
    control="other held-out text against held-out text: about 0",
    control_bound=ABOUT_0,
    draws=DRAWS // 2,
    costly=True,
)
def test_contrastive_search_repeats_less_than_greedy_text(subject, draws, sample):
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        rows = contrastive.contrastive_search(subject, prompt.ids[:, :START], TOKENS).tolist()
        searches = [generation.cut_at_end(subject, row) for row in rows]
        add_difference(
            subject, prompt, sample, contrastive=searches, greedy=greedily(subject, prompt)
        )


@finding(
    "E23",
    "text generated under a repetition penalty repeats less than greedy text",
    needs=NEEDS,
    source="003, after Welleck and Su",
    bound=Bound(bounded_change, below=0.0),
    control="other held-out text against held-out text: about 0",
    control_bound=ABOUT_0,
    draws=DRAWS,
    costly=True,
)
def test_a_penalty_repeats_less_than_greedy_text(subject, draws, sample):
    for prompt in texts.prompts(subject, texts.TEXT, draws, [START + TOKENS]):
        held_back = generation.generate_texts(
            subject, prompt.ids[:, :START], TOKENS, repetition_penalty=1.2
        )
        add_difference(
            subject, prompt, sample, penalised=held_back, greedy=greedily(subject, prompt)
        )


def add_difference(subject, prompt, sample, **sides):
    """Add repetition in the texts of the first side less that in the other's, and all lengths.

    The control is held-out text against other held-out text.
    """
    (name, one), (other_name, other) = sides.items()
    both = [repetition(*pair) for pair in zip(one, other, strict=True)]
    sample.add(effect=[mine - theirs for mine, theirs in both])
    sample.add(**{name: [mine for mine, _ in both], other_name: [theirs for _, theirs in both]})
    sample.add(**{f"tokens_{side}": [len(each) for each in rows] for side, rows in sides.items()})
    others = prompt.draws.for_claim("E23, other held-out text")
    (unlike,) = texts.prompts(subject, texts.TEXT, others, [START + TOKENS])
    pairs = zip(unlike.ids[:, START:].tolist(), prompt.ids[:, START:].tolist(), strict=True)
    sample.add(control=[mine - theirs for mine, theirs in (repetition(*pair) for pair in pairs)])


def repetition(one, other):
    """The shares of repeated 4-grams of two texts, over the length of the shorter one.

    A text of fewer than four tokens repeats nothing.
    """
    length = min(len(one), len(other))
    pair = (measures.repeated_share(torch.tensor([each[:length]])) for each in (one, other))
    return [float(share.nan_to_num(nan=0.0)) for share in pair]


def greedily(subject, prompt):
    """Greedy texts of at most `TOKENS` tokens after the first `START` of each prompt: ids.

    They are cached: all claims use the same texts.
    """
    cache, numbers = greedy_texts(subject), list(prompt.draws)
    seed = prompt.draws.seed
    if missing := [i for i, number in enumerate(numbers) if (seed, number) not in cache]:
        continuations = generation.generate_texts(subject, prompt.ids[missing, :START], TOKENS)
        cache |= {(seed, numbers[i]): text for i, text in zip(missing, continuations, strict=True)}
    return [cache[seed, number] for number in numbers]


@memo
def greedy_texts(subject):
    """The subject's greedy texts by seed and number of the draw."""
    return {}
