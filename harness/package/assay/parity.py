"""Compares two models in memory that should compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.models.subject import meant
from assay.harness.operations import parity
from assay.harness.report.parity import lines
from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import read_seed
from assay.harness.results.verdicts import Result, Verdict
from assay.run import Refuted, Run, Undecided, evaluated, subject_of


@dataclass(repr=False)
class Compared(Run):
    """Whether two models agree: a result for each comparison, and where they begin to differ.

    ``divergence`` is the first block and module that differ, or None.  ``next_tokens`` has the
    KL divergence and the agreement of the most probable token, None without logits.  ``unequal``
    are the tensors of the same name that are not equal, a line for each.  ``str`` is the report
    that `assay check A --against B` prints.
    """

    outcome: parity.Parity = field(default_factory=parity.Parity)
    text: str = ""

    @property
    def verdict(self) -> Verdict:
        """Upheld, refuted or inconclusive."""
        return self.outcome.verdict

    @property
    def divergence(self) -> parity.Divergence | None:
        """Where the models begin to differ."""
        return self.outcome.divergence

    @property
    def next_tokens(self) -> dict[str, Any] | None:
        """KL in nats (mean, median, 99.9 %), the share of equal most probable tokens, and its
        interval.
        """
        distributions = self.outcome.distributions
        return None if distributions is None else distributions.as_json()

    @property
    def unequal(self) -> list[str]:
        """Parameters and buffers of the same name that are not equal."""
        return self.outcome.unlike

    @property
    def exit(self) -> int:
        """The exit code of the command: 0 where the models agree, else 1."""
        return self.outcome.exit

    @property
    def lacking(self) -> list[str]:
        """Nothing: capabilities are not what is compared."""
        return []

    def require(self) -> Compared:
        """Return the comparison if the models agree.  Raises `Refuted`, or `Undecided`."""
        if self.verdict is Verdict.REFUTED:
            raise Refuted(self.text)
        if self.verdict is not Verdict.UPHELD:
            raise Undecided(self.text)
        return self

    def __str__(self) -> str:
        return self.text


def compare_models(
    a: nn.Module | Callable[..., Any],
    b: nn.Module | Callable[..., Any],
    *,
    profile: str = "quick",
    seed: int = 0,
    logits_only: bool = False,
    attends: str | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> Compared:
    """Compare ``a`` with ``b``, which is taken for right, on their own devices.

    Both are models of transformers, plain modules, or functions from ids [batch, n] to logits
    [batch, n, vocabulary].  The same ids go to both; the outputs of the blocks and the logits are
    compared row by row, as the models run and in float64.  ``profile`` says how many prompts,
    ``seed`` which; with ``logits_only`` the blocks are left out; ``attends`` is ``causal`` or
    ``both`` where class and configuration do not say.  The models are in evaluation mode
    meanwhile; then their state is restored, gradients included.

    Raises `BadInput` for models that cannot be compared, such as those of two vocabularies.

    >>> import copy
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=64,
    ...     num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
    ... )
    >>> original = LlamaForCausalLM(config)
    >>> port = copy.deepcopy(original)
    >>> compare_models(port, original, profile="glance").verdict.value
    'upheld'
    >>> port.model.layers[1].mlp.up_proj.weight.data[0] += 0.1
    >>> compare_models(port, original, profile="glance").divergence.module
    'model.layers.1.mlp.up_proj'
    """
    check_profile(profile)
    if attends not in (None, *meant.WAYS):
        raise BadInput(f"attends {attends!r}: choose from {', '.join(meant.WAYS)}")
    budget, base = PROFILES[profile], read_seed(str(seed), "seed")
    pair = [
        subject_of(model, None, attends, name, budget)
        for model, name in zip((a, b), names, strict=True)
    ]
    one, other = pair
    with (
        evaluated(one.model),
        evaluated(other.model),
        torch.random.fork_rng(devices=[]),
    ):
        outcome = parity.compare(one, other, budget, base, not logits_only)
        run = parity.describe(outcome, one, other, budget, base)
    text = "\n".join(lines(outcome, one, other))
    results: list[Result] = outcome.results
    return Compared(results, run, one.digest, outcome=outcome, text=text)
