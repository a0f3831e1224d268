"""llama.cpp's server: begun here on a GGUF file (by xllamacpp), or one that runs already."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import msgspec

from assay.harness.engines import libraries
from assay.harness.engines.interface import Chat, Engine, Generated, Ids, Sampling, Scores
from assay.harness.results.errors import BadInput

USUAL = {"cache": "float16", "flash": "", "best": "", "threads": "1", "seconds": "120"}
"""The options, with what they are where they are left out."""

CACHES = {"float32": "F32", "float16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
"""Types of the cache, by llama.cpp's names."""

TYPES = {"all F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Files whose weights are of one type, in which inputs of matrix products are too."""

PACKAGE = "xllamacpp"
"""What a server is begun by."""

SLOTS, POSITIONS = 4, 256
"""Requests at once, and tokens of each."""

LISTED = 20
"""Scores of each generated token: 32 rows of a whole vocabulary take minutes."""


class Listed(msgspec.Struct):
    """The log-probability of a token."""

    id: int
    logprob: float


class Step(Listed):
    """A generated token, with the best ones in its place."""

    top_logprobs: list[Listed]


class Answer(msgspec.Struct):
    """What /completion answers, as far as it is read; all else is skipped fast."""

    tokens: list[int]
    completion_probabilities: list[Step] = []


class LlamaCpp(Engine):
    """``FILE.gguf`` or ``http://…``, with ``,cache=…,flash=on|off|auto,best=K,threads=N``."""

    def __init__(self, what: str) -> None:
        path, self.options = libraries.read(what, USUAL)
        self.cache = self.options["cache"]
        if not self.options["flash"]:
            self.options["flash"] = "off" if self.cache == "float32" else "auto"
        if self.cache not in CACHES:
            raise BadInput(f"cache={self.cache}: choose from {', '.join(CACHES)}")
        self._server: Any = None
        self._path = path
        if not path.startswith("http"):
            if not Path(path).is_file():
                raise BadInput(f"{path}: no such file")
        else:
            self.lacks = {"engine-restart": "the server was started elsewhere"}
        self.restart()
        (facts,) = self._sent("/v1/models")["data"]
        properties = self._sent("/props")
        self.vocabulary = facts["meta"]["n_vocab"]
        self.longest = libraries.longest(self.vocabulary)
        self.best = libraries.best(self.options, self.vocabulary) or self.vocabulary
        self.context = properties["default_generation_settings"]["n_ctx"]
        build = properties["build_info"] if path.startswith("http") else metadata.version(PACKAGE)
        self.name = f"llama.cpp {build}"  # servers of the package do not know their build
        self.identity = f"{properties.get('model_path')} {sorted(facts['meta'].items())}"
        (self._letter, *_) = self._sent("/tokenize", {"content": "a"})["tokens"]
        kind = facts["meta"].get("ftype", "")
        self.dtype = TYPES.get(kind, "float32")
        if self.options["flash"] != "off" and self.cache == "float32":
            self.cache = "float16"  # flash attention on a CPU is as exact as that
        self.rotated = self.cache.startswith("q")
        self.queries = "q8_0" if self.rotated else self.cache
        if kind not in TYPES:
            self.stored = kind.lower()
            self.activations = "q8_k" if "_k" in self.stored else "q8_0"
            self.weights = "" if path.startswith("http") else path

    def restart(self) -> None:
        """Begin another server, with nothing cached."""
        self.close()
        address = self._path if self._path.startswith("http") else self._begun()
        seconds = libraries.number(self.options, "seconds")
        self._client = httpx.Client(base_url=address, timeout=seconds)

    def _begun(self) -> str:
        import xllamacpp

        flash, threads = self.options["flash"], libraries.number(self.options, "threads")
        parameters = xllamacpp.CommonParams()
        parameters.model.path = self._path
        parameters.n_parallel, parameters.n_ctx = SLOTS, SLOTS * POSITIONS
        cache = CACHES[self.options["cache"]]
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache}")
        parameters.cache_type_k = parameters.cache_type_v = kind
        name = {"on": "ENABLED", "off": "DISABLED"}.get(flash, "AUTO")
        parameters.flash_attn_type = getattr(
            xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{name}"
        )
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        parameters.verbosity, parameters.fit_params, parameters.ui = -1, False, False
        self._server = xllamacpp.Server(parameters)
        return self._server.listening_address

    def close(self) -> None:
        """End the server that was begun here."""
        self._server = None

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """The next token's scores after every prefix of each request, or after all of it."""
        size = self.vocabulary if self.best >= self.vocabulary else 0

        def read(prompts: list[Ids]) -> Scores:  # one after another: alone is to be alone
            rows = [self._next(each, not cold, self.best) for each in prompts]
            return _listed(rows, len(prompts[0]) - 1, size, chosen=False)

        with ThreadPoolExecutor(SLOTS) as pool:
            return list(pool.map(read, libraries.prefixes(requests, cold)))

    def _next(self, prompt: Ids, cached: bool, best: int) -> Step:
        """The next token's scores, raw.  Biased to a letter: others may end within a character,
        of which the server gives no scores.
        """
        body = {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": best,
            "temperature": 0.0,
            "logit_bias": [[self._letter, 1e6]],
            "cache_prompt": cached,
        }
        answer = self._sent("/completion", body, Answer)
        return answer.completion_probabilities[0]

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """Requests at once.  A token that ends texts is the last."""
        body = {
            "n_predict": sampling.tokens,
            "n_probs": min(LISTED, self.best),
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "repeat_penalty": sampling.repetition_penalty,
            "repeat_last_n": self.context,
            "samplers": ["penalties", "temperature", "top_k", "top_p"],
            "return_tokens": True,
        }
        bodies = [
            {"prompt": list(ids), "seed": sampling.seed + number, **body}
            for number, ids in enumerate(requests)
        ]
        with ThreadPoolExecutor(SLOTS) as pool:
            answers = list(pool.map(lambda each: self._sent("/completion", each, Answer), bodies))
        return [
            Generated(answer.tokens, _listed(self._steps(list(ids), answer), len(ids) - 1))
            for answer, ids in zip(answers, requests, strict=True)
        ]

    def _steps(self, ids: Ids, answer: Answer) -> list[Step]:
        """A step for each token.  Those that the server leaves out are asked for again, after
        the cached text: those of tokens within a character.
        """
        tokens, steps = answer.tokens, answer.completion_probabilities
        names = [each.id for each in steps]
        first, last = _places(tokens, names), _places(tokens[::-1], names[::-1])[::-1]
        known = {
            place: step
            for place, other, step in zip(first, last, steps, strict=True)
            if place == len(tokens) - 1 - other
        }
        for place in (each for each in range(len(tokens)) if each not in known):
            step = self._next(ids + tokens[:place], True, self.vocabulary)
            score = next(each for each in step.top_logprobs if each.id == tokens[place])
            known[place] = Step(score.id, score.logprob, step.top_logprobs[:LISTED])
        return [known[place] for place in range(len(tokens))]

    def tokenize(self, text: str) -> Ids:
        """By the file's tokenizer, with what it adds to every text."""
        return self._tokens(text, special=False)

    def chat(self, messages: Chat) -> Ids:
        """By the file's template; the server reads the text with special tokens."""
        text = self._sent("/apply-template", {"messages": messages})["prompt"]
        return self._tokens(text, special=True)

    def _tokens(self, text: str, special: bool) -> Ids:
        body = {"content": text, "add_special": True, "parse_special": special}
        return self._sent("/tokenize", body)["tokens"]

    def _sent(self, *request: Any) -> Any:
        return libraries.sent(self._client, *request)


def _places(tokens: Ids, listed: Ids) -> list[int]:
    """The first places of ``listed`` in ``tokens``, in their order."""
    places, start = [], 0
    for each in listed:
        start = tokens.index(each, start) + 1
        places.append(start - 1)
    return places


def _listed(steps: Sequence[Step], first: int, size: int = 0, chosen: bool = True) -> Scores:
    """The scores of ``steps``: the best ones, with the ``chosen`` one, or all ``size``."""
    best = [{each.id: each.logprob for each in step.top_logprobs} for step in steps]
    if size:
        return Scores([[row[token] for token in range(size)] for row in best], first=first)
    for row, step in zip(best, steps, strict=True):
        if chosen and step.id not in row:
            row.popitem()
            row[step.id] = step.logprob
    return Scores([[*row.values()] for row in best], [[*row] for row in best], first)
