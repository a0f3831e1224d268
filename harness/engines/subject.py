"""An engine as a subject of claims, with its answers checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from assay.harness.engines import middle
from assay.harness.engines.interface import CAPABILITIES, Chat, Engine, Ids, Sampling
from assay.harness.engines.scores import Rows, rows_of
from assay.harness.models.machine.devices import dtype_name, parse_dtype
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.models.subject.wrapped import Wrapped, WrappedConfig
from assay.harness.results.errors import BadInput, Missing, brief

Answer = TypeVar("Answer")

NO_FOLDER = "no model to compare with; --against names one"

LEAST = 8
"""Ids of the smallest vocabulary that can be examined."""


@dataclass(frozen=True)
class Text:
    """The new ``ids`` of one request, and a row of scores for each, if the engine gives any."""

    ids: Ids
    scores: Rows | None = None


@dataclass(eq=False)
class EngineSubject(Subject):
    """An engine as claims see it: no torch model, but ids and scores.

    ``against`` is the model that it should agree with, ``own_weights`` one of exactly its stored
    weights; each may be None.  ``in_dtype`` loads the latter, or else the former, in a dtype.
    """

    engine: Engine = field(default_factory=Engine)
    against: Subject | None = None
    own_weights: Subject | None = None
    in_dtype: Callable[[str], Subject] | None = None
    allowances: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """What `harness.engines.bounds.plain` keeps of each request."""

    @cached_property
    def in_its_dtype(self) -> Subject | None:
        """A model of its weights, as far as there is one, that computes in the engine's type."""
        same = self.same_weights
        if same is not None and dtype_name(same.dtype) == self.engine.dtype:
            return same
        return None if self.in_dtype is None else self.in_dtype(self.engine.dtype)

    @cached_property
    def converted(self) -> Subject | None:
        """The model with weights rounded to the engine's type; None where it says none, or where
        that is what its own weights are.
        """
        kind = self.engine.stored or (self.engine.dtype if self.engine.weights else "")
        if self.against is None or not kind or (self.own_weights and not self.engine.weights):
            return None
        return middle.with_rounded_weights(self.against, kind)

    @cached_property
    def context(self) -> int | None:
        """The most tokens of a request with its answer; None: no limit."""
        return self.engine.context

    @property
    def same_weights(self) -> Subject | None:
        """A model of the engine's weights, as far as is known."""
        return self.own_weights or (None if self.engine.stored else self.against)

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> list[Rows]:
        """Log-probabilities of each request, which are sent together; raises `BadInput`."""
        answers = self._asked("scores", lambda: self.engine.scores(requests, cold=cold))
        self._require(len(answers), len(requests), "requests")
        rows = [rows_of(answer, self.vocabulary, self.name) for answer in answers]
        for each, ids in zip(rows, requests, strict=True):
            self._require(each.end, len(ids), "positions")
            if cold and each.first:
                raise Missing(f"engine-scores: it gives no scores before position {each.first}")
        return rows

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> list[Text]:
        """Continue each request; raises `BadInput`."""
        answers = self._asked("generate", lambda: self.engine.generate(requests, sampling))
        self._require(len(answers), len(requests), "requests")
        texts = []
        for each, ids in zip(answers, requests, strict=True):
            new = [int(token) for token in each.ids]
            if not all(0 <= token < self.vocabulary for token in new):
                raise BadInput(f"{self.name}: generates ids outside of 0 to {self.vocabulary - 1}")
            if len(new) > sampling.tokens:
                raise BadInput(f"{self.name}: generates more than {sampling.tokens} tokens")
            rows = None
            if each.scores is not None:
                rows = rows_of(each.scores, self.vocabulary, self.name)
                self._require(rows.first, len(ids) - 1, "positions before its text")
                self._require(len(rows), len(new), "rows for its text")
                if np.isnan(rows.of(new)).any():
                    raise BadInput(f"{self.name}: gives no score of a token that it chose")
            texts.append(Text(new, rows))
        return texts

    def tokenize(self, text: str) -> Ids:
        """The ids of a text; raises `BadInput`."""
        return [int(each) for each in self._asked("tokenize", lambda: self.engine.tokenize(text))]

    def chat(self, messages: Chat) -> Ids:
        """The ids of a chat with the prompt for an answer; raises `BadInput`."""
        return [int(each) for each in self._asked("chat", lambda: self.engine.chat(messages))]

    def restart(self) -> None:
        """Begin another life of the engine's process; raises `BadInput`."""
        self._asked("restart", self.engine.restart)

    def _asked(self, what: str, call: Callable[[], Answer]) -> Answer:
        for clock in self.clocks:
            clock.check()  # an engine's requests are no passes, which would check it
        try:
            return call()
        except (BadInput, Missing):
            raise
        except NotImplementedError as error:  # an engine may lack a part of a method
            raise Missing(f"engine-{what}: {error}") from error
        except Exception as error:  # whatever another library, or a server's answer, raises
            raise BadInput(f"{self.name}: {what} ended in {brief(error)}") from error

    def _require(self, observed: int, expected: int, what: str) -> None:
        if observed != expected:
            raise BadInput(f"{self.name}: answers with {observed} {what} in place of {expected}")


def subject_of(
    name: str,
    engine: Engine,
    against: Subject | None = None,
    own_weights: Subject | None = None,
    in_dtype: Callable[[str], Subject] | None = None,
) -> EngineSubject:
    """``engine`` as a subject, after one request; raises `BadInput` where none is possible."""
    if not isinstance(engine, Engine):
        raise BadInput(f"{name}: is a {type(engine).__name__}, and no Engine")
    if engine.vocabulary < LEAST:
        raise BadInput(f"{name}: has a vocabulary of {engine.vocabulary}; {LEAST} are needed")
    if against is not None and against.vocabulary < engine.vocabulary:
        raise BadInput(
            f"{name} has a vocabulary of {engine.vocabulary} and {against.name} of "
            f"{against.vocabulary}: the same ids cannot go to both"
        )
    subject = EngineSubject(
        name,
        _stand_in(engine),
        digest=_digest(name, engine, against),
        settings=SubjectSettings(attends="causal"),
        offer="an engine has no recorded capabilities",
        engine=engine,
        against=against,
        own_weights=own_weights,
        in_dtype=in_dtype,
    )
    subject.own_capabilities = _capabilities(subject)
    if subject.own_capabilities["engine-scores"] is None:
        subject.scores([[1, 2, 3]])
    elif subject.own_capabilities["engine-generation"] is None:
        subject.generate([[1, 2, 3]], Sampling(1))
    return subject


def _digest(name: str, engine: Engine, against: Subject | None) -> str:
    """SHA-256 (hex) of what the engine says of itself, the files that it serves, and the model."""
    types = (engine.dtype, engine.stored, engine.activations, engine.cache, engine.queries)
    what = (type(engine).__module__, engine.name, engine.identity, *types)
    digest = hashlib.sha256("\n".join([name, *what, against.digest if against else ""]).encode())
    for served in map(Path, sorted({*engine.files, *filter(None, [engine.weights])})):
        for file in sorted(served.rglob("*")) if served.is_dir() else [served]:
            if file.is_file():
                digest.update(f"\n{file.relative_to(served)}\n".encode())
                with file.open("rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _capabilities(subject: EngineSubject) -> dict[str, str | None]:
    """What the engine has, with None, and what it lacks, with the reason."""
    engine, reasons = subject.engine, dict[str, str | None]()
    for name, method in CAPABILITIES.items():
        own = getattr(type(engine), method) is not getattr(Engine, method)
        missing = None if own else f"{engine.name} does not implement {method}"
        reasons[name] = missing or engine.lacks.get(name)
    folder = subject.against
    reasons["engine-model"] = None if folder is not None else NO_FOLDER
    tokenizer: Any = None if folder is None else folder.tokenizer
    without = NO_FOLDER if folder is None else f"{folder.name} has no tokenizer"
    reasons["engine-model-tokens"] = None if tokenizer is not None else without
    template = getattr(tokenizer, "chat_template", None)
    without = without if tokenizer is None else f"{folder and folder.name} has no chat template"
    reasons["engine-model-chats"] = None if template else without
    return reasons


def _stand_in(engine: Engine) -> Wrapped:
    """What stands where a subject has its model: sizes and a dtype, and no weights."""

    def answer(input_ids: Any) -> Any:
        raise Missing("an engine is no model of torch")

    config: Any = WrappedConfig()
    config.vocab_size, config.hidden_size, config.num_hidden_layers = engine.vocabulary, 0, 0
    config.max_position_embeddings = engine.context
    config.inner = config.model_type = engine.name
    stand_in = Wrapped(config, answer)
    stand_in.logits_dtype = parse_dtype(engine.dtype)
    stand_in.logits_device = torch.device("cpu")
    return stand_in
