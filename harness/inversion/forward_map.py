"""A map of a trained model's states: what a token, and the state before it, make of a state.

States of trained models depend on the tokens before as much as on their own, and a few of their
features are thousands of times as large as others.  So features are standardised and clipped, and
regressed on the state of the token before, which is a target too, and on what the first block
makes of the token: that ranks more tokens right than its embedding.  Tokens are ranked by
Mahalanobis' distance in the metric of what the regression leaves.  The first place has a
regression of its own, and so have massive states behind it (attention sinks, arXiv 2309.17453).
They are rare, except at the second place: one random token in six has one after one other in
Qwen2.5.  So they are sampled there, and such tokens at all places.  Some long states are as usual
but for their length, as those of full stops; likelihoods say which.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from assay.harness.inversion.candidates import Prefixes
from assay.harness.inversion.regression import CLIP, Part, deviations
from assay.harness.inversion.set_up import (
    TOKENS_AT_ONCE,
    basis_of,
    reduced_output,
    sample,
    save,
)
from assay.harness.inversion.target import Target, embedded
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations import tokens

LENGTH = 20
"""Tokens of the prompts from which the map is made."""

DRAWN, MORE, WINDOWS = 200, 240, 190
"""Prompts of random tokens, others with tokens of massive states, and prompts of documentation and
of code, each.  Half as many again rank at most 0.015 more of held-out tokens first."""

FIRST, SECOND = 64, 48
"""Random first tokens, and second tokens after each, among which massive states are found."""

PROSE = Path(__file__).with_name("declaration.txt")
"""Articles of the Universal Declaration of Human Rights, in seven languages, a paragraph each, and
a paragraph about it in three, with the quotation marks, dashes and no-break spaces of print."""

DOCUMENTATION = "pydoc_data.topics"
CODE = ("argparse", "tarfile", "subprocess", "logging", "difflib", "statistics", "zipfile")
"""Modules of the standard library whose texts are those of most models' kind.  Another version of
Python has others: the map differs a little, and what is verified does not."""

READ = 400_000
"""Letters of those texts that are read."""

ALONE = 750
"""Prompts of one token that are the first ids, frequent in most texts, beside random ones."""

LONGER = 1.5
"""How many times as long as usual a state is that may be massive, where first states are so long.
Which kind it is depends on its distances: of longer ones some are full stops and line ends."""


@dataclass(frozen=True)
class ForwardMap:
    """The map for one model and target, over the ``table`` [V, d] of its `token_table`.

    ``first`` is of the first place, ``later`` of the others; states longer than ``sink`` may be
    as ``massive`` expects.  ``states`` were computed for it, beside the linear map's `sample`.
    States of logits are times ``basis``.
    """

    table: Tensor
    first: Part
    later: Part
    massive: Part
    sink: float
    states: int
    basis: Tensor | None = None

    def at(self, place: int, state: Tensor) -> tuple[Part, ...]:
        """The parts for the ``state`` [F] of a ``place``."""
        if place == 0:
            return (self.first,)
        return (self.later, self.massive) if float(state.norm()) > self.sink else (self.later,)


def forward_map(subject: Subject, target: Target, keep: Path | None = None) -> ForwardMap:
    """The map for ``target``, made once and kept with the subject, and in the folder ``keep``."""
    maps = _maps(subject)
    if target not in maps:
        path = None if keep is None else _path(keep, subject, target)
        stored = None
        if keep is not None and path is not None:
            stored = _read(path, subject, target, keep)
        maps[target] = stored or _estimate(subject, target, keep)
        if path is not None and stored is None:
            _write(path, maps[target])
    return maps[target]


@memo
def _maps(subject: Subject) -> dict[Target, ForwardMap]:
    return {}


def _estimate(subject: Subject, target: Target, keep: Path | None) -> ForwardMap:
    draw, basis = torch.Generator().manual_seed(2), basis_of(subject, target)
    table, known = token_table(subject, keep), sample(subject, target)
    vocabulary = len(embedded(subject))
    frequent = subject.content(torch.arange(min(ALONE, vocabulary), device=subject.device))
    singles = _states(subject, target, frequent[:, None], basis)[:, 0]
    alone = torch.cat([known.tokens, frequent])
    singles = torch.cat([known.states.float(), singles])
    prompts = torch.cat([_random(subject, (DRAWN, LENGTH), draw), *_texts(subject, draw)])
    states = _states(subject, target, prompts, basis)
    longest, usual = (float(each.norm(dim=-1).median()) for each in (singles, states[:, 1:]))
    sink = LONGER * usual if longest > LONGER * usual else float("inf")
    more = _random(subject, (MORE, LENGTH), draw)
    computed = frequent.numel() + prompts.numel() + more.numel()
    second, seconds = alone[:0], singles[:0]
    if sink < float("inf") and basis is None:  # logits have no massive states
        second, seconds = _after_one(subject, target, draw)
        computed += FIRST + second.numel()
        second, seconds = (each[seconds.norm(dim=-1) > sink] for each in (second, seconds))
    if len(second):
        half = torch.rand(more.shape, generator=draw) < 0.5
        likely = torch.randint(len(second), more.shape, generator=draw)
        more = torch.where(half.to(more.device), second[likely.to(more.device)], more)
    ids, after, before = _behind(
        (prompts, states),
        (more, _states(subject, target, more, basis)),
        (known.prompts.ids, known.prompts.states.float()),
    )
    long = after.norm(dim=-1) > sink
    sinks = torch.cat([alone, second, ids[long]]), torch.cat([singles, seconds, after[long]])
    return ForwardMap(
        table,
        first=Part.fit(table, alone, singles, None),
        later=Part.fit(table, ids, after, before),
        massive=Part.fit(table, *sinks, None),
        sink=sink,
        states=computed,
        basis=basis,
    )


def _behind(*sets: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens [s] of prompts [k, n] but the first, their states [s, F], and those before.

    First states are in other units: the mean of the others stands for them.
    """
    ids = torch.cat([prompts[:, 1:].flatten() for prompts, _ in sets])
    after = torch.cat([states[:, 1:].flatten(0, 1) for _, states in sets])
    mean, parts = after.mean(0), []
    for _, states in sets:
        before = states[:, :-1].clone()
        before[:, 0] = mean
        parts.append(before.flatten(0, 1))
    return ids, after, torch.cat(parts)


def _random(subject: Subject, shape: tuple[int, int], draw: torch.Generator) -> Tensor:
    ids = torch.randint(len(embedded(subject)), shape, generator=draw)
    return subject.content(ids.to(subject.device))


def _texts(subject: Subject, draw: torch.Generator) -> list[Tensor]:
    """Prompts of prose, of documentation and of code; none without a tokenizer."""
    parts = [text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH) for text in _prose(subject)]
    for text in _library(subject):
        begins = torch.randint(len(text) - LENGTH, (WINDOWS,), generator=draw)
        parts.append(text[begins[:, None] + torch.arange(LENGTH)])
    return [subject.content(each.to(subject.device)) for each in parts]


def _after_one(subject: Subject, target: Target, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random second tokens [s], and their states [s, F]."""
    first, second = (_random(subject, (FIRST, n), draw) for n in (1, SECOND))
    states = []
    for some in torch.arange(FIRST, device=first.device).split(max(1, TOKENS_AT_ONCE // SECOND)):
        prefixes = Prefixes(subject, target, len(some))
        prefixes.extend(first[some])
        parts = [each for _, each in prefixes.states(second[some])]
        states.append(torch.cat(parts, 1).flatten(0, 1))
    return second.flatten(), torch.cat(states).float()


def _states(subject: Subject, target: Target, prompts: Tensor, basis: Tensor | None) -> Tensor:
    at_once = max(1, TOKENS_AT_ONCE // prompts.shape[1])
    parts = prompts.split(at_once)
    return torch.cat([reduced_output(subject, target, some, basis).float() for some in parts])


def _prose(subject: Subject) -> list[Tensor]:
    """The ids of prose in several languages, which the library lacks; none without a tokenizer."""
    if "tokenizer" not in capabilities.probe(subject):
        return []
    texts = PROSE.read_text(encoding="utf-8").splitlines()
    return [torch.tensor(tokens.ids(subject, text)) for text in texts]


def _library(subject: Subject) -> list[Tensor]:
    """The ids of documentation and of code; none without a tokenizer."""
    if "tokenizer" not in capabilities.probe(subject):
        return []
    texts = []
    with suppress(ImportError):
        texts.append("\n".join(importlib.import_module(DOCUMENTATION).topics.values()))
    with suppress(ImportError, OSError):  # OSError: installed without its source
        texts.append("\n".join(inspect.getsource(importlib.import_module(m)) for m in CODE))
    ids = [torch.tensor(tokens.ids(subject, text[:READ])) for text in texts]
    return [each for each in ids if len(each) > LENGTH]


def token_table(subject: Subject, keep: Path | None = None) -> Tensor:
    """What the first block makes of every token after one other, standardised: [V, hidden].

    Made once and kept with the subject, and in the folder ``keep``.
    """
    tables = _tables(subject)
    if not tables:
        path = None if keep is None else _path(keep, subject, "tokens")
        stored = None if path is None else _read_table(path, subject)
        made = _token_states(subject) if stored is None else stored
        if path is not None and stored is None:
            with suppress(OSError, SafetensorError):
                save(path, {"table": made.bfloat16()})
        # Rounded always, so that a map is the same from the disk.
        tables.append(made.bfloat16().float())
    return tables[0]


@memo
def _tables(subject: Subject) -> list[Tensor]:
    return []


def _token_states(subject: Subject) -> Tensor:
    prefixes = Prefixes(subject, Target(1), 1)
    prefixes.extend(subject.content(torch.zeros(1, 1, dtype=torch.long, device=subject.device)))
    everyone = torch.arange(len(embedded(subject)), device=subject.device)[None]
    states = torch.cat([some[0].float() for _, some in prefixes.states(everyone)])
    return ((states - states.mean(0)) / deviations(states)).clamp(-CLIP, CLIP).nan_to_num()


FORMAT = 8
"""Of the files: raised when the estimate or its fields change."""

PARTS = ("first", "later", "massive")
"""The regressions of a `ForwardMap`."""


def _path(folder: Path, subject: Subject, what: object) -> Path | None:
    if not subject.digest:
        return None
    words = f"forward {FORMAT} {subject.digest} {what!r} {subject.dtype} {subject.attention}"
    return folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"


def _read_table(path: Path, subject: Subject) -> Tensor | None:
    try:
        with safe_open(path, "pt", device=str(subject.device)) as file:
            table: Tensor = file.get_tensor("table")
    except (OSError, SafetensorError, KeyError):
        return None
    return table.float()


def _read(path: Path, subject: Subject, target: Target, keep: Path) -> ForwardMap | None:
    try:
        with safe_open(path, "pt", device=str(subject.device)) as file:
            parts = {
                name: Part(*(file.get_tensor(f"{name}.{each.name}") for each in fields(Part)))
                for name in PARTS
            }
            sink, states = file.get_tensor("numbers").tolist()
    except (OSError, SafetensorError, KeyError):
        return None
    table, basis = token_table(subject, keep), basis_of(subject, target)
    return ForwardMap(table, **parts, sink=sink, states=int(states), basis=basis)


def _write(path: Path, made: ForwardMap) -> None:
    parts = {"numbers": torch.tensor([made.sink, float(made.states)], dtype=torch.float64)}
    for name in PARTS:
        part = getattr(made, name)
        parts |= {f"{name}.{each.name}": getattr(part, each.name) for each in fields(Part)}
    with suppress(OSError, SafetensorError):
        save(path, parts)
