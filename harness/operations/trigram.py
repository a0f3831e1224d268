"""The trigram toys of document 001: transformers of three tokens, trained from many seeds at once.

They follow Karpathy's lecture "Let's build GPT", like nanoGPT, which the document names: token
embeddings, a head without biases, a projection, a linear layer; no norm and no MLP.  Seeds are
independent: each has its own slice of every parameter, and the optimisers work element by element,
so a step on the stack is a step of each alone.  The toys are the last dimension of every tensor,
because with matrices this small it is fastest to multiply and add up along the toys; a single toy
is computed by the same code without that dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from assay.harness.checking.draws import Draws
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import share

VOCABULARY = ("A", "B", "hit", "!", "?")

TASKS = {"A hit B": ("A hit B !", "B hit A ?"), "A B hit": ("A B hit ?", "B A hit !")}
"""By their first prompt: two sentences of the same words, which differ only in their order.

In the first task the last token determines the answer, in the second it is the same.
"""

SWAPPED = {"A hit B, swapped": ("A hit B ?", "B hit A !")}
"""The first task with its answers exchanged."""

WIDTH = 16
"""The width of the embeddings: twice the usual head of 8, as in the lecture (32 and 16)."""

EARLY = (30, 50, 70, 100)
SHORT = (10, 30, 50, 70, 100, 200, 500)
STEPS = (*SHORT, 1000, 2000)
"""Steps after which success is measured; the last one ends the training."""

OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-3, fused=True),
    "sgd": functools.partial(torch.optim.SGD, lr=0.1),
}
"""The lecture's, with its learning rate, and plain descent at a usual learning rate."""

Success = dict[str, dict[int, Tensor]]
"""By task (or other label) and steps: whether each seed has both sentences right, [seeds]."""

TIE = 1e-4
"""The smallest lead (in logits) of a predicted token: below it, rounding chooses."""


@dataclass(frozen=True)
class Variant:
    """A toy's architecture and training."""

    head: int = 8
    layers: int = 1
    residual: bool = True
    positions: bool = False
    causal: bool = True
    optimiser: str = "adamw"


def apply(linear: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer: [sentences, positions, in, *toys] → [sentences, positions, out, *toys]."""
    y = (x.unsqueeze(2) * linear.weight).sum(3)
    return y if linear.bias is None else y + linear.bias


class Layer(nn.Module):
    """One attention head and its projection."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, variant.head, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(variant.head, WIDTH)

    def forward(self, x: Tensor, reads: int = 3) -> Tensor:
        """Attend from the last positions: [sentences, 3, WIDTH, *toys] → [sentences, reads, …]."""
        here = x[:, -reads:]
        # Without biases, q · Kx = Kᵀq · x and Σ w Vx = V Σ w x: a product for each position that
        # reads, not for each that is read.
        queries = (apply(self.query, here).unsqueeze(3) * self.key.weight).sum(2)
        scores = (queries.unsqueeze(2) * x.unsqueeze(1)).sum(3) / self.variant.head**0.5
        if self.variant.causal and reads > 1:  # nothing is ahead of the last position
            ahead = torch.ones(3, 3, dtype=torch.bool, device=x.device).triu(1)[-reads:]
            ahead = ahead.reshape(reads, 3, *(1 for _ in x.shape[3:]))
            scores = scores.masked_fill(ahead, -torch.inf)
        mixed = (scores.softmax(2).unsqueeze(3) * x.unsqueeze(1)).sum(2)
        attended = apply(self.out, apply(self.value, mixed))
        return here + attended if self.variant.residual else attended


class Trigram(nn.Module):
    """Three tokens in, logits of the fourth out.

    Weights have torch's default distribution, drawn from the toy's own ``seed``.
    """

    def __init__(self, variant: Variant, seed: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(VOCABULARY), WIDTH)
        self.places = nn.Embedding(3, WIDTH) if variant.positions else None
        self.layers = nn.ModuleList(Layer(variant) for _ in range(variant.layers))
        self.unembed = nn.Linear(WIDTH, len(VOCABULARY))
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, generator=generator)
            elif isinstance(module, nn.Linear):
                reach = module.in_features**-0.5
                for parameter in module.parameters():
                    nn.init.uniform_(parameter, -reach, reach, generator=generator)

    def forward(self, prompts: Tensor) -> Tensor:
        """One-hot [sentences, 3, vocabulary, *toys] → [sentences, vocabulary, *toys].

        Only the last position makes a prediction, so the last layer attends only from there.
        """
        x = (prompts.unsqueeze(3) * self.tokens.weight).sum(2)
        if self.places is not None:
            x = x + self.places.weight
        for layer in self.layers:
            x = layer(x, reads=1 if layer is self.layers[-1] else 3)
        return apply(self.unembed, x).squeeze(1)


def one_hot(ids: Tensor) -> Tensor:
    """Ids of prompts as a toy reads them: [2, 3, *toys] → [2, 3, vocabulary, *toys]."""
    return F.one_hot(ids, len(VOCABULARY)).movedim(-1, 2).float().contiguous()


def sentences(task: str) -> tuple[Tensor, Tensor]:
    """The ids of a task's prompts [2, 3] and of the answers [2]."""
    ids = torch.tensor(
        [[VOCABULARY.index(word) for word in s.split()] for s in (TASKS | SWAPPED)[task]]
    )
    return ids[:, :-1], ids[:, -1]


def both_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether both answers lead every other token: [..., 2, vocabulary], [..., 2] → [...]."""
    return each_right(logits, answers).all(-1)


def each_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether each answer does: [..., 2, vocabulary], [..., 2] → [..., 2]."""
    answer = F.one_hot(answers, logits.shape[-1]).bool()
    best_other = logits.masked_fill(answer, -torch.inf).amax(-1)
    return logits[answer].view_as(best_other) - best_other > TIE


def course(
    variant: Variant,
    seeds: Sequence[int],
    steps: int,
    device: torch.device | None = None,
    tasks: Sequence[str] = tuple(TASKS),
) -> Iterator[Tensor]:
    """Train a toy from each seed on each of the ``tasks``.

    Yields the logits [tasks, seeds, 2, vocabulary] before the first step and after each.
    """
    toys = [Trigram(variant, seed) for _ in tasks for seed in seeds]
    stacked = stack_module_state(toys)[0].items()
    weights = {
        name: w.detach().movedim(0, -1).to(device, torch.float32).contiguous().requires_grad_()
        for name, w in stacked
    }
    prompts, answers = (
        torch.stack(side, -1).repeat_interleave(len(seeds), -1).to(device)
        for side in zip(*map(sentences, tasks), strict=True)
    )
    words, toy = one_hot(prompts), toys[0].to("meta")
    optimiser = OPTIMISERS[variant.optimiser](weights.values())
    for step in range(steps + 1):
        logits = functional_call(toy, weights, words)
        yield logits.detach().movedim(-1, 0).unflatten(0, (len(tasks), -1))
        if step < steps:
            # The mean over a toy's two sentences, the sum over toys, which keeps them independent.
            loss = F.cross_entropy(logits, answers, reduction="sum") / 2
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()


def train(
    variant: Variant,
    seeds: tuple[int, ...],
    at: tuple[int, ...] = STEPS,
    device: torch.device | None = None,
    tasks: tuple[str, ...] = tuple(TASKS),
) -> Success:
    """The successes of `course` after the steps ``at``; cached, since several claims use them."""
    return _train(variant, seeds, at, device, tasks)  # one key, however arguments are passed


@functools.cache
def _train(
    variant: Variant,
    seeds: tuple[int, ...],
    at: tuple[int, ...],
    device: torch.device | None,
    tasks: tuple[str, ...],
) -> Success:
    success: Success = {task: {} for task in tasks}
    for step, logits in enumerate(course(variant, seeds, max(at), device, tasks)):
        if step in at:
            for task, of_task in zip(tasks, logits.cpu(), strict=True):
                answers = sentences(task)[1].expand(len(seeds), 2)
                success[task][step] = both_right(of_task, answers)
    return success


def question_less_exclamation(
    variant: Variant, seeds: Sequence[int], steps: int, device: torch.device | None, task: str
) -> Tensor:
    """Whether '?' is right minus whether '!' is, after ``steps``: -1, 0 or 1, [seeds]."""
    *_, (logits,) = course(variant, seeds, steps, device, [task])
    answers = sentences(task)[1]
    both = each_right(logits.cpu(), answers.expand(len(seeds), 2)).double()
    asks = answers == VOCABULARY.index("?")
    return (both[:, asks] - both[:, ~asks])[:, 0]


def seeds(draws: Draws, purpose: str = "") -> tuple[int, ...]:
    """A seed for each draw, the same for every claim, so that all claims share one training."""
    shared = draws.for_claim("001")
    return tuple(shared.generator(i, purpose).initial_seed() for i in draws)


def half_learned(variant: Variant, task: str, draws: Draws, device: torch.device) -> int:
    """The step of `EARLY` after which the share of seeds that have learned is nearest to 1/2.

    It uses other seeds: choosing by the draws themselves would favour the claim.
    """
    trial_seeds = seeds(replace(draws, numbers=range(64)), "choice")
    learned = train(variant, trial_seeds, EARLY, device, (task,))[task]
    return min(EARLY, key=lambda step: abs(learned[step].double().mean() - 0.5))


def record(sample: Sample, learned: Success) -> None:
    """Record how many of all seeds so far have learned, by label and steps: numbers and curves."""
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
    sample.plot("Success over steps", "curves", curves, x="steps", y="share of seeds", log=True)
