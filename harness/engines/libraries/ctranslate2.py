"""CTranslate2: a converted folder, or one of transformers, which is converted first."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from assay.harness.engines import libraries
from assay.harness.engines.interface import Engine, Generated, Ids, Sampling, Scores

USUAL = {"type": "float32", "threads": "1"}
"""The options, with what they are where they are left out."""


class CTranslate2(Engine):
    """``FOLDER[,type=float32|bfloat16|int8|…][,threads=N]``."""

    def __init__(self, what: str) -> None:
        path, options = libraries.read(what, USUAL)
        folder = Path(path)
        if not (folder / "model.bin").is_file():
            self._converted = tempfile.TemporaryDirectory(prefix="assay-")
            folder = Path(self._converted.name) / "model"
            ctranslate2.converters.TransformersConverter(path).convert(str(folder))
        kind = options["type"]
        threads = libraries.number(options, "threads")
        self.generator = ctranslate2.Generator(
            str(folder), compute_type=kind, inter_threads=1, intra_threads=threads
        )
        self.name = f"CTranslate2 {ctranslate2.__version__}"
        self.words = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        self.vocabulary = len(self.words)
        self.longest = libraries.longest(self.vocabulary)
        used = self.generator.compute_type
        self.dtype = next((each for each in ("bfloat16", "float16") if each in used), "float32")
        if used.startswith("int"):
            self.stored = used.partition("_")[0]
            self.activations = self.stored if self.stored == "int8" else ""

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """One pass for all; or the last row of each, after a static prompt that is cached."""
        if not cold:
            return [self._after_static_prompt(ids) for ids in requests]
        rows = _array(self.generator.forward_batch([list(each) for each in requests]))
        return [Scores(row[: len(ids)]) for row, ids in zip(rows, requests, strict=True)]

    def _after_static_prompt(self, ids: Ids) -> Scores:
        words = [self.words[each] for each in ids]
        (result,) = self.generator.generate_batch(
            [words[-1:]],
            static_prompt=words[:-1] or None,
            max_length=1,
            include_prompt_in_result=False,
            return_logits_vocab=True,
            end_token=[],
        )
        return Scores(_array(result.logits[0][-1])[None], first=len(ids) - 1)

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """In one batch.  A repetition penalty counts a prompt only as a part of the result, and
        changes the reported logits: then none are given.
        """
        penalty = sampling.repetition_penalty != 1.0
        ctranslate2.set_random_seed(sampling.seed)
        prompts = [[self.words[token] for token in each] for each in requests]
        if penalty and len({len(each) for each in requests}) > 1:
            return [self.generate([each], sampling)[0] for each in requests]
        results = self.generator.generate_batch(
            prompts,
            max_length=sampling.tokens + (len(prompts[0]) - 1 if penalty else 0),
            sampling_topk=sampling.top_k if sampling.temperature else 1,
            sampling_topp=sampling.top_p,
            sampling_temperature=sampling.temperature or 1.0,
            repetition_penalty=sampling.repetition_penalty,
            include_prompt_in_result=penalty,
            return_logits_vocab=not penalty,
            end_token=[],
        )
        texts = []
        for result, ids in zip(results, requests, strict=True):
            new = list(result.sequences_ids[0])
            if penalty:
                texts.append(Generated(new[len(ids) :]))
                continue
            rows = np.stack([_array(each) for each in result.logits[0]])[-len(new) :]
            texts.append(Generated(new, Scores(rows, first=len(ids) - 1)))
        return texts


def _array(view: Any) -> Any:
    return np.array(view.to(ctranslate2.DataType.float32))
