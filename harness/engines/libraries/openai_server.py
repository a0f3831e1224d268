"""Any server with OpenAI's completions and chat interface, such as vLLM's and SGLang's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from assay.harness.engines import libraries
from assay.harness.engines.interface import Chat, Engine, Generated, Ids, Sampling, Scores
from assay.harness.results.errors import BadInput

USUAL = {
    "model": "",
    "vocabulary": "",
    "best": "5",
    "type": "float32",
    "stored": "",
    "cache": "",
    "reports": "raw",
    "key": "",
    "seconds": "120",
}
"""The options, with what they are where they are left out.  Of types a server says nothing."""


class OpenAIServer(Engine):
    """``http://…/v1,vocabulary=N[,model=NAME][,best=K][,type=…][,cache=…]``.

    Prompts are ids.  Scores of a prompt are vLLM's ``prompt_logprobs``, which are asked for once;
    a server without them gives none.  Ids of new tokens are vLLM's ``return_token_ids``.
    """

    longest = 16

    def __init__(self, what: str) -> None:
        address, self.options = libraries.read(what, USUAL)
        headers = {"Authorization": f"Bearer {key}"} if (key := self.options["key"]) else {}
        seconds = libraries.number(self.options, "seconds")
        self._client = httpx.Client(base_url=address, headers=headers, timeout=seconds)
        models = {each["id"]: each for each in self._sent("/models")["data"]}
        model = self.options["model"] or next(iter(models), "")
        if model not in models:
            raise BadInput(f"{address}: serves {', '.join(models)}, and no {model!r}")
        self.model, self.name = model, f"{models[model].get('owned_by', 'a server')}, {model}"
        self.context = models[model].get("max_model_len")
        self.identity = str(models[model].get("root", ""))
        self.best = libraries.number(self.options, "best")
        self.vocabulary = libraries.number(self.options, "vocabulary")
        self.dtype, self.stored = self.options["type"], self.options["stored"]
        self.cache, self.reports = self.options["cache"], self.options["reports"]
        self.lacks = self._missing()

    def _missing(self) -> dict[str, str]:
        """What one short request shows that the server does not give."""
        missing = {"engine-prefix-cache": "no request says whether a prefix cache is read"}
        body = {"prompt": [1, 2, 3], "max_tokens": 1, "logprobs": 1}
        (choice,) = self._completed({**body, "return_token_ids": True})
        if choice.get("token_ids") is None:
            reason = "the server does not return the ids of new tokens (return_token_ids)"
            missing |= {"engine-generation": reason, "engine-sampling": reason}
            missing |= {"engine-generated-scores": reason}
        elif choice.get("logprobs") is None:
            missing["engine-generated-scores"] = "the server returns no logprobs"
        try:
            (choice,) = self._completed({**body, "prompt_logprobs": 1})
        except BadInput:
            choice = {}
        if choice.get("prompt_logprobs") is None:
            reason = "the server returns no scores of a prompt (prompt_logprobs)"
            missing |= {"engine-scores": reason, "engine-batches": reason}
        try:
            self.tokenize("a")
        except BadInput:
            reason = "the server has no /tokenize"
            missing |= {"engine-tokens": reason, "engine-chats": reason}
        return missing

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """The best scores after each position; after the last one those of a new token."""
        body = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": self.best}
        # One more id makes the last position one of the prompt.
        choices = self._completed({"prompt": [[*ids, ids[-1]] for ids in requests], **body})
        answers = []
        for choice in choices:
            rows = [_best(row, self.best) for row in choice["prompt_logprobs"][1:]]
            answers.append(Scores([list(r.values()) for r in rows], [list(r) for r in rows]))
        return answers

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """In one request; scores are of the chosen tokens."""
        body = {
            "prompt": [list(each) for each in requests],
            "max_tokens": sampling.tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "logprobs": 1,
            "return_token_ids": True,
            "ignore_eos": True,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.repetition_penalty != 1.0:
            body["repetition_penalty"] = sampling.repetition_penalty
        texts = []
        for choice, ids in zip(self._completed(body), requests, strict=True):
            scores, new = choice.get("logprobs"), choice["token_ids"]
            known = libraries.chosen(ids, new, scores["token_logprobs"]) if scores else None
            texts.append(known or Generated(new))
        return texts

    def tokenize(self, text: str) -> Ids:
        """By the server's tokenizer (vLLM, SGLang: beside the interface's folder)."""
        return self._tokens({"prompt": text, "add_special_tokens": True})

    def chat(self, messages: Chat) -> Ids:
        """By the server's template."""
        return self._tokens({"messages": messages, "add_generation_prompt": True})

    def _tokens(self, body: dict[str, Any]) -> Ids:
        return self._sent("../tokenize", {"model": self.model, **body})["tokens"]

    def _completed(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self._sent("/completions", {"model": self.model, **body})
        return sorted(answer["choices"], key=lambda choice: choice["index"])

    def _sent(self, *request: Any) -> Any:
        return libraries.sent(self._client, *request)


def _best(row: dict[str, Any], count: int) -> dict[int, float]:
    """The best ``count`` of vLLM's log-probabilities, which list the prompt's own token too."""
    ranked = sorted(row.items(), key=lambda each: each[1]["rank"])[:count]
    return {int(token): each["logprob"] for token, each in ranked}
