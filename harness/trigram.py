"""The trigram toys of document 001: transformers of three tokens, trained from many seeds at once.

They are after Karpathy's lecture "Let's build GPT", as nanoGPT is, which the document names: token
embeddings, a head without biases, a projection, a linear layer; no norm and no feed-forward part.
Seeds do not meet: each has its own slice of every parameter, and the optimisers work element by
element, so a step on the stack is a step of each alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from harness.draws import Draws
from harness.findings import Sample
from harness.statistics import share

VOCABULARY = ("A", "B", "hit", "!", "?")

TASKS = {"A hit B": ("A hit B !", "B hit A ?"), "A B hit": ("A B hit ?", "B A hit !")}
"""By their first prompt: two sentences of the same words, told apart by their order alone.

In the first the last token gives the answer away, in the second it is the same.
"""

WIDTH = 16
"""Of the embeddings: twice the usual head of 8, as the lecture has it (32 and 16)."""

EARLY = (30, 50, 70, 100)
SHORT = (10, 30, 50, 70, 100, 200, 500)
STEPS = (*SHORT, 1000, 2000)
"""Steps after which success is looked at; the last one ends the training."""

OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-3, fused=True),
    "sgd": functools.partial(torch.optim.SGD, lr=0.1),
}
"""The lecture's, with its rate, and plain descent at the rate that is usual for it."""

Success = dict[str, dict[int, Tensor]]
"""By task (or other label), by steps: whether each seed has both sentences right, [seeds]."""

TIE = 1e-4
"""A token ahead by less (in logits) is not predicted, but chosen by rounding."""


@dataclass(frozen=True)
class Variant:
    """What a toy is made of, and how it is trained."""

    head: int = 8
    layers: int = 1
    residual: bool = True
    positions: bool = False
    causal: bool = True
    optimiser: str = "adamw"


class Layer(nn.Module):
    """One attention head and its projection: [sentences, 3, WIDTH] → same."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.qkv = nn.Linear(WIDTH, 3 * variant.head, bias=False)
        self.out = nn.Linear(variant.head, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, with or without a causal mask, and add to ``x`` if there is a residual."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2) / self.variant.head**0.5
        if self.variant.causal:
            ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(ahead, -torch.inf)
        attended = self.out(scores.softmax(-1) @ v)
        return x + attended if self.variant.residual else attended


class Trigram(nn.Module):
    """Three tokens in, logits of the fourth out: [sentences, 3] → [sentences, vocabulary].

    Weights are drawn as torch draws them by default, but from the toy's own ``seed``.
    """

    def __init__(self, variant: Variant, seed: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(VOCABULARY), WIDTH)
        self.places = nn.Embedding(3, WIDTH) if variant.positions else None
        self.layers = nn.Sequential(*(Layer(variant) for _ in range(variant.layers)))
        self.unembed = nn.Linear(WIDTH, len(VOCABULARY))
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, generator=generator)
            elif isinstance(module, nn.Linear):
                reach = module.in_features**-0.5
                for parameter in module.parameters():
                    nn.init.uniform_(parameter, -reach, reach, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """The prediction is read from the last place only."""
        x = self.tokens(ids)
        x = self.layers(x if self.places is None else x + self.places.weight)
        return self.unembed(x[..., -1, :])


def sentences(task: str) -> tuple[Tensor, Tensor]:
    """The ids of a task's prompts [2, 3] and of the answers [2]."""
    ids = torch.tensor([[VOCABULARY.index(word) for word in s.split()] for s in TASKS[task]])
    return ids[:, :-1], ids[:, -1]


def right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether both answers lead every other token: [..., 2, vocabulary], [..., 2] → [...]."""
    answer = F.one_hot(answers, logits.shape[-1]).bool()
    best_other = logits.masked_fill(answer, -torch.inf).amax(-1)
    return (logits[answer].view_as(best_other) - best_other > TIE).all(-1)


def course(
    variant: Variant, seeds: Sequence[int], steps: int, device: torch.device | None = None
) -> Iterator[Tensor]:
    """Train a toy from each seed on each task.

    Yields the logits [tasks, seeds, 2, vocabulary] before the first step and after each.
    """
    toys = [Trigram(variant, seed) for _ in TASKS for seed in seeds]
    stacked = stack_module_state(toys)[0].items()  # type: ignore[arg-type]
    weights = {name: w.detach().to(device, torch.float32).requires_grad_() for name, w in stacked}
    prompts, answers = (
        torch.stack(side).repeat_interleave(len(seeds), 0).to(device)
        for side in zip(*map(sentences, TASKS), strict=True)
    )
    predict = vmap(functools.partial(functional_call, toys[0].to("meta")))
    optimiser = OPTIMISERS[variant.optimiser](weights.values())
    for step in range(steps + 1):
        logits = predict(weights, prompts)
        yield logits.detach().unflatten(0, (len(TASKS), -1))
        if step < steps:
            # The mean over a toy's two sentences, the sum over toys: so they do not meet.
            loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum") / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


@functools.cache  # several claims look at one training
def train(
    variant: Variant,
    seeds: tuple[int, ...],
    at: tuple[int, ...] = STEPS,
    device: torch.device | None = None,
) -> Success:
    """`course`, looked at after the steps ``at``."""
    success: Success = {task: {} for task in TASKS}
    for step, logits in enumerate(course(variant, seeds, max(at), device)):
        if step in at:
            for task, of_task in zip(TASKS, logits.cpu(), strict=True):
                success[task][step] = right(of_task, sentences(task)[1].expand(len(seeds), 2))
    return success


def seeds(draws: Draws, purpose: str = "") -> tuple[int, ...]:
    """One for each draw, the same for every claim: the toys of one training serve them all."""
    shared = draws.of("001")
    return tuple(shared.generator(i, purpose).initial_seed() for i in draws)


def half_learned(variant: Variant, task: str, draws: Draws, device: torch.device) -> int:
    """The step of `EARLY` after which the share of seeds that have learned is nearest to 1/2.

    Found with seeds of its own: choosing on the draws themselves would favour the claim.
    """
    others = seeds(replace(draws, numbers=range(64)), "choice")
    learned = train(variant, others, EARLY, device)[task]
    return min(EARLY, key=lambda step: abs(learned[step].double().mean() - 0.5))


def record(sample: Sample, learned: Success) -> None:
    """Keep how many of all seeds so far have learned, by label and steps: numbers and curves."""
    table = sample.details.setdefault("seeds that have learned, after steps", {})
    curves = {}
    for label, by_step in learned.items():
        row, points = table.setdefault(label, {}), []
        for step, now in by_step.items():
            hits, of = row.get(str(step), (0, 0))
            hits, of = row[str(step)] = hits + int(now.sum()), of + len(now)
            low, high = share.interval((np.arange(of) < hits).astype(np.float64), 0.95)
            points.append((step, hits / of, low, high))
        curves[label] = points
    sample.plot("learning", "curves", curves, x="steps", y="share of seeds", log=True)
