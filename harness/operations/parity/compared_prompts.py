"""The prompts that both models get."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.checking.draws import Draws
from assay.harness.checking.profiles import Profile
from assay.harness.models.subject import Subject, edges
from assay.harness.models.subject.lengths import LONG, ONE_LONG_IN, usual_longest
from assay.harness.operations.parity import tensors

MOST_UNLIKE = 64
"""Ids of unlike embeddings that a prompt holds."""

NUMBER = "parity"
"""The number of the results of a comparison, where claims have theirs, and of its draws."""


def prompts(one: Subject, other: Subject, profile: Profile, seed: int) -> list[Tensor]:
    """Batches of two prompts of random ids [2, n]: one for each example of the profile.

    The first is the longest, the second the shortest; half of the others have a length at which
    one of the models begins to compute otherwise (a window, a chunk).  Then the first row of both
    alone, and a prompt of ids whose embeddings differ, if any do.
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
    batches += [each[:1] for each in batches[:2]]  # a model may treat a single row otherwise
    unlike = tensors.unlike_embeddings(one, other)
    if len(unlike):  # ids that random prompts of a large vocabulary may never hold
        unlike = unlike.repeat(least)[: max(least, min(most, len(unlike), MOST_UNLIKE))]
        batches.append(unlike.repeat(2, 1))
    return batches


def random_ids(subject: Subject, batch: int, n: int, generator: torch.Generator) -> Tensor:
    """Ids [batch, n] of text, on the CPU."""
    numbers = torch.randint(subject.vocabulary, (batch, n), generator=generator)
    return subject.content(numbers.to(subject.device)).cpu()
