"""Summarises the passages of documents that claims cite as sources, in our own words.

A source such as ``000, question, point 1`` names a document by its key and a place in it.  A
passage belongs to every source that names its document and its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """A summary of a passage; ``place`` is the text by which sources name it."""

    key: str
    place: str
    says: str


_SUMMARIES = {
    "000": {
        "question, point 1": "With the position table permuted and the tokens left alone, GPT-2's "
        "output barely changes, though the author expected it to.",
        "question, point 2": "With tokens and positions permuted in the same way, the output "
        "changes a lot and does not return to the original, though the author expected it to.",
        "its code": "The code permutes the first rows of GPT-2's position table by [0, 4, 2, 3, "
        "1], permutes the five tokens of 'The man ate the cow' alike, and generates.",
        "question and solution": "The question expects that permuting tokens and positions alike "
        "restores the output; the solution says that the causal mask is why it does not.",
        "solution, last paragraph": "To see token order and positions in isolation, use a masked "
        "language model in the style of BERT, which has no causal mask.",
        "solution": "Token i attends to tokens j ≤ i only.  Permuting positions keeps that order, "
        "so that little changes; permuting tokens changes which token sees which.",
    },
    "001": {
        "question and answer 1": "Permuting the input of a head permutes the rows of its output; "
        "the values stay the same.",
        "question": "Heads are called permutation-invariant, but the prediction is the last row, "
        "which belongs to another token once the input is permuted.",
        "comment to answer 1": "A model with self-attention alone can be trained to tell "
        "'A hit B !' from 'B hit A ?'.",
        "comment to answer 2": "The seeds that fail need more steps: after 500 all are right.",
        "answer 2": "A weighted sum loses the order of its terms.  Whether the toy learns '!' and "
        "'?' depends on the seed; '?' comes out right more often; with a head of size 2, "
        "narrower than the context, nearly every seed fails.",
        "answer 3": "The toy works because its last tokens differ.  For 'A B hit ?' and "
        "'B A hit !', whose last tokens are equal, it could not learn which to give without "
        "positions.",
    },
    "002": {
        "exercise 1": "Cosines between the rows of GPT-2's position table, and between its "
        "columns, are drawn as maps: neighbouring positions are alike.",
        "exercise 2": "The histogram of cosines between columns is compared with that of the "
        "same numbers shuffled, to show that the structure is not chance.",
        "exercise 3": "The most similar pairs of columns are listed with their cosines, and "
        "plotted, to see whether they are copies.",
    },
    "003": {
        "equation 3": "Tokens are recovered from an embedding by the pseudo-inverse of the "
        "embedding matrix, and the largest entry of each row.",
        "pseudo-inverse": "The pseudo-inverse is defined as the limit of the regularised inverse "
        "(WᵀW + αI)⁻¹Wᵀ as α falls to 0.",
        "the positional weight matrix": "Positions do not depend on the input, so that they can "
        "be subtracted from an embedding before it is decoded.",
        "a shifted input": "Noise of σ = 1/20 on the embedding usually leaves the output of a "
        "trained GPT-2 as it was, and so serves as a yardstick for 'close'.",
        "FCNet": "A fully connected net with layers at least as wide as its input returns the "
        "prompt by gradient descent; with a narrower last layer it no longer typically does.",
        "translate nonsense": "One untrained block gives nearly the prompt back, and the prompt "
        "itself once the descent takes 1000 steps or more.",
        "increasing the total": "More steps of descent give a smaller distance and a greater "
        "chance of the original prompt.",
        "increase in the number of transformer blocks": "The deeper the output, the less of the "
        "prompt is recovered.",
        "the full 12 transformer blocks": "At full depth with the head, what descent finds is not "
        "the prompt, and is still followed by the same next token.",
        "become less trainable": "Trained GPT-2 is much harder to invert than an untrained one: "
        "the descent needs many more steps and a carefully chosen learning rate.",
        "removing the language modeling head": "Without the head, one trained block needs less "
        "than a hundredth of the steps to come closer than the yardstick (inequality 4).",
        "torch.double": "In float64 the descent needs as many steps as in float32, so that "
        "rounding is not what makes it slow.",
        "a different metric": "Minimising L² in place of L¹ makes a trained block no easier to "
        "invert.",
        "holds even for": "Started from the answer with a thousandth of noise, the descent meets "
        "the inequality, even for a very close yardstick.",
        "(s, t) = (1, 1)": "Started from the answer plus noise in full, the descent does nearly "
        "as well, with more steps.",
        "Skydragon": "What such a start ends in decodes to tokens that are no sentence.",
        "completely unrecognizable": "Even inputs that meet a stricter inequality decode to "
        "tokens that have nothing to do with the prompt.",
        "feasible to generate": "Without the head it becomes possible to find inputs whose output "
        "is closer than that of a slightly shifted prompt.",
        "Approximate Token Mapping": "Each position is decoded to its five nearest tokens: for "
        "the invertible net they are related to the true one, for a trained block they are not.",
        "much less likely": "The words found for a trained model are rarely seen in text, unlike "
        "those found for an untrained one.",
        "epetition": "Nearly every badly formed input on the page repeats tokens.",
        "perhaps easier": "For GPT-2 XL, 20 steps are more than enough to meet the inequality "
        "after the first block, where the smallest GPT-2 needs more.",
        "much less repetition": "What is found for the larger model repeats less.",
        "quantization": "Later blocks of the larger model are worse conditioned, in 8 bits as "
        "well, so that quantisation is not the reason.",
        "later transformer blocks": "All 48 blocks are harder to optimise than the first 24, "
        "which points at badly conditioned later blocks.",
        "decreasing linearly": "The learning rate falls linearly to a tenth over the run, which "
        "is said to optimise fastest.",
        "Freezing the language modeling head": "Since gradients pass the head badly, training "
        "with a frozen head is expected to be easier.",
        "one hundred times": "Meeting the inequality takes a trained model about a hundred times "
        "as many steps as an untrained one.",
        "practically infeasible": "For a yardstick with σ = 1/25 the inequality cannot be met in "
        "practice.",
        "essentially equivalently": "The prompt and the nonsense that descent found for it have "
        "the same next token.",
        "m_g < m": "After 100 steps the output is nearer than that of the shifted prompt.",
        "Engine casino": "The tokens found after 100 steps through one block and the head have "
        "nothing to do with the prompt.",
        "completely nonsensical": "Many nonsensical inputs give the same output as a sentence.",
        "most nearby points": "Near the hidden state of a sentence, most points are those of no "
        "sentence at all.",
        "controlled; beyond": "Removing the head makes inversion easier; the document takes the "
        "head for a bottleneck.",
        "range(len(tokens))": "The code that embeds a prompt enumerates positions by "
        "`range(len(tokens))`, where `tokens` is a batch of one row: each gets position 0.",
        "individual_gradient": "The gradient of the summed output equals the sum of the gradients "
        "of its elements, so that one backward pass is enough.",
        "10 or 50": "Walking along a direction orthogonal to the gradient keeps the output of "
        "narrow nets.",
        "or 200 or more": "With 200 neurons or more the walk no longer keeps the output.",
        "d_o / d_i > 20": "For a transformer, the output moves more than twenty times as far as "
        "the input, in float64 as well.",
        "there does not appear to be a difference": "One null vector, broadcast over tokens, does "
        "as well as a vector for each token.",
        "poor conditioning inherent": "The product of null vector and gradient is 1e-2 for the "
        "transformer and far smaller for a net; self-attention is blamed.",
        "1e-8": "The product of null vector and gradient is about 1e-8 for a net, 1e-3 for a "
        "block, 1e-2 for all blocks, and 1e-17 in float64.",
        "from one to fifty": "With fifty steps of descent for each clamp in place of one, the "
        "input moves a hundred times as far as the output.",
        "does not yield an r > 3": "A fully connected net reaches a ratio of 3 at most.",
        "r of at most 3": "A fully connected net reaches a ratio of 3 at most.",
        "clamped walk": "Some elements of the input are shifted and held, and descent restores "
        "the output by the others: the input moves much further than the output.",
        "orthogonal walk": "The input is moved along right-singular vectors that are orthogonal "
        "to the gradient, so that the output should stay.",
        "Welleck": "Generated text repeats itself; the document compares its gibberish with this.",
        "Su": "Generated text repeats itself; the document compares its gibberish with this.",
    },
    "004": {
        "question": "In GPT-2 only the newest token is processed, and the states of past tokens "
        "are kept.  Would it not be better to evaluate them again?",
        "answer 1:": "Evaluating the past again with full attention would be possible, and may "
        "work better, as it leads to richer states.",
        "answer 1": "States are computed once and reused: it is cheaper, and matches training, "
        "where masking gives each position one state per layer.",
        "answers 1 and 2": "States of past tokens are computed once and reused; because of the "
        "mask, computing them again would give the same.",
        "answer 2": "The mask keeps every position from attending to later ones, so that past "
        "states would not change if they were computed again.",
    },
}

PASSAGES = tuple(
    Passage(key, place, says) for key, texts in _SUMMARIES.items() for place, says in texts.items()
)
"""In the order of the documents; of two places in one text, the more specific is first."""


def passages(source: str) -> list[Passage]:
    """The passages that a claim's ``source`` names; of places within others the narrowest."""
    matches: list[Passage] = []
    for part in re.split(r";\s*(?=\d{3}\b)", source):
        candidates = [p for p in PASSAGES if re.search(rf"\b{p.key}\b", part) and p.place in part]
        inner = {
            p for p in candidates if any(p is not q and p.place in q.place for q in candidates)
        }
        matches += [p for p in candidates if p not in inner]
    return list({(p.key, p.says): p for p in matches}.values())
