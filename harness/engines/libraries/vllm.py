"""vLLM in this process, with scores of the whole vocabulary, or of the best of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import vllm

from assay.harness.engines import libraries
from assay.harness.engines.interface import Engine, Generated, Ids, Sampling, Scores

USUAL = {"type": "float32", "cache": "auto", "longest": "256", "best": ""}
"""The options, with what they are where they are left out."""

BLOCK = 32
"""Tokens of a block of the cache, the fewest on a CPU: no shorter prefix is cached."""


class Vllm(Engine):
    """``FOLDER[,type=float32|bfloat16][,cache=auto|fp8|…][,longest=N][,best=K]``."""

    def __init__(self, what: str) -> None:
        path, options = libraries.read(what, USUAL)
        self.context = libraries.number(options, "longest")
        self.llm = vllm.LLM(
            path,
            dtype=options["type"],
            kv_cache_dtype=options["cache"],
            max_model_len=self.context,
            max_logprobs=-1,
            enable_prefix_caching=True,
            block_size=BLOCK,
            enforce_eager=True,
        )
        self.dtype = options["type"]
        self.cache = "" if options["cache"] == "auto" else options["cache"]
        self.name = f"vLLM {vllm.__version__}"
        self.vocabulary = self.llm.llm_engine.model_config.get_vocab_size()
        self.best = libraries.best(options, self.vocabulary)
        self.longest = 2 * libraries.longest(self.vocabulary) + 8
        if self.longest <= BLOCK:
            self.lacks = {
                "engine-prefix-cache": f"it caches no prefix shorter than {BLOCK} tokens"
            }

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """Of each prompt position; or the next token's, after what the prefix cache has."""
        if cold:
            listed = self.best or -1
            how = vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=listed)
            # One more id makes the last position one of the prompt.
            outputs = self._answers([[*ids, ids[-1]] for ids in requests], how)
            return [self._scores(output.prompt_logprobs[1:], 0) for output in outputs]
        how = vllm.SamplingParams(max_tokens=1, temperature=0.0, logprobs=self.best or -1)
        return [
            self._scores(output.outputs[0].logprobs, len(ids) - 1)
            for output, ids in zip(self._answers(requests, how), requests, strict=True)
        ]

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """All at once, with raw scores (``logprobs_mode``)."""
        hows = [
            vllm.SamplingParams(
                max_tokens=sampling.tokens,
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                repetition_penalty=sampling.repetition_penalty,
                seed=sampling.seed + number,  # equal prompts would get equal texts
                logprobs=self.best or -1,
                ignore_eos=True,
            )
            for number in range(len(requests))
        ]
        texts = []
        for output, ids in zip(self._answers(requests, hows), requests, strict=True):
            text = output.outputs[0]
            new = list(text.token_ids)
            texts.append(Generated(new, self._scores(text.logprobs, len(ids) - 1, new)))
        return texts

    def _answers(self, requests: Sequence[Ids], how: Any) -> list[Any]:
        prompts: Any = [{"prompt_token_ids": list(ids)} for ids in requests]
        return self.llm.generate(prompts, how, use_tqdm=False)

    def _scores(self, rows: Sequence[Any], first: int, chosen: Sequence[int] = ()) -> Scores:
        """The scores of ``rows``; where the best are listed, with those of ``chosen`` tokens."""
        if self.best:
            ids = [sorted(row, key=lambda i: -row[i].logprob)[: self.best] for row in rows]
            for listed, token in zip(ids, chosen, strict=False):
                if token not in listed:
                    listed[-1] = token
            values = [[row[i].logprob for i in some] for row, some in zip(rows, ids, strict=True)]
            return Scores(values, ids, first)
        whole = np.full((len(rows), self.vocabulary), -np.inf)
        for row, scores in zip(whole, rows, strict=True):
            row[list(scores)] = [each.logprob for each in scores.values()]
        return Scores(whole, first=first)
