"""Models damaged or built for one finding, and what a finding comes to on them."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace

import torch
from torch import nn

from assay.fixtures.texts import RANDOM
from assay.harness.checking.profiles import Profile
from assay.harness.models.capabilities import recorded
from assay.harness.models.subject import masks, positions
from assay.harness.models.subject.provenance import UNKNOWN
from assay.harness.tests.support.toys import fresh, verdict


def settled(test, subject, draws=128):
    """What a claim comes to, on random tokens where it is about prompts."""
    profile = Profile("test", examples=0, shrink=0, draws=draws)
    on_prompts = "source" in inspect.signature(test).parameters
    return verdict(test, subject, profile, arguments={"source": RANDOM} if on_prompts else {})


def renamed(spec="gpt2"):
    """A copy that may be damaged, and of which nothing says that it was never trained."""
    return replace(fresh(spec), name="a copy", provenance=UNKNOWN)


def alike(by=0.0, spec="gpt2"):
    """A model in which half of the vocabulary has the other half's embeddings, or nearly so."""
    subject = renamed(spec)
    with torch.no_grad():
        half = subject.vocabulary // 2
        subject.embedding_table[half : 2 * half] = subject.embedding_table[:half] * (1 + by)
    return subject


def with_positions(change, spec="gpt2"):
    """A copy whose table of positions is ``change`` of what it was."""
    subject = renamed(spec)
    weight = positions.position_table(subject).weight
    with torch.no_grad():
        weight.copy_(change(weight.clone()))
    return subject


def seeing_all(spec):
    """A model that says it is causal and attends both ways, whatever mask it is given.

    What it can do was found before, so that only the findings can tell.
    """
    subject = renamed(spec)
    recorded.reasons(subject)

    def unmasked(module, arguments, named):
        ids = named.get("input_ids", named.get("inputs_embeds"))
        mask = masks.full(ids.shape[1], subject.dtype)
        return arguments, {**named, "attention_mask": mask.expand(len(ids), -1, -1, -1)}

    subject.model.register_forward_pre_hook(unmasked, with_kwargs=True)
    return subject


def saying(next_of):
    """A copy of the small reference's twin that follows each token by ``next_of`` it."""
    subject = renamed("untrained:small:0")
    vocabulary = subject.vocabulary

    def answer(module, arguments, named, output):
        said = nn.functional.one_hot(next_of(named["input_ids"]) % vocabulary, vocabulary)
        output = copy.copy(output)
        output.logits = said[:, -output.logits.shape[1] :].float()
        return output

    subject.model.register_forward_hook(answer, with_kwargs=True)
    return subject
