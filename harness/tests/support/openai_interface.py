"""A small server with OpenAI's completions interface, which answers for Assay's own engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from assay.harness.engines.interface import Sampling
from assay.harness.engines.own import Own


@contextmanager
def served(own: Own, without: Collection[str] = ()) -> Iterator[str]:
    """The address of a server of ``own``, whose answers are ``without`` some keys."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"data": [{"id": "own", "owned_by": "assay", "max_model_len": 64}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize" and "tokenize" not in without:
                text = body.get("prompt")
                ids = own.chat(body["messages"]) if text is None else own.tokenize(text)
                self.answer({"tokens": ids})
            elif self.path == "/v1/completions":
                self.answer({"choices": [*choices(own, body, without)]})
            else:
                self.answer({}, 404)

        def answer(self, content: Any, status: int = 200) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def choices(own: Own, body: dict[str, Any], without: Collection[str]) -> Iterator[dict[str, Any]]:
    """What /completions answers, as vLLM does: of each prompt its best scores, and a text."""
    prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
    names = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
    sampling = Sampling(body["max_tokens"], **{each: body[each] for each in names if each in body})
    for index, (ids, text) in enumerate(
        zip(prompts, own.generate(prompts, sampling), strict=True)
    ):
        choice: dict[str, Any] = {"index": index, "token_ids": text.ids}
        rows = torch.as_tensor(text.scores.values).double().log_softmax(-1)
        of_text = rows.gather(1, torch.tensor(text.ids)[:, None])[:, 0].tolist()
        choice["logprobs"] = {"token_logprobs": of_text}
        if best := body.get("prompt_logprobs"):
            (scores,) = own.scores([ids[:-1]])
            rows = torch.as_tensor(scores.values).double().log_softmax(-1)
            choice["prompt_logprobs"] = [None, *(listed(row, best) for row in rows)]
        yield {name: value for name, value in choice.items() if name not in without}


def listed(row: torch.Tensor, best: int) -> dict[str, dict[str, float]]:
    """The best of a row by their ids, as vLLM writes them."""
    found = row.topk(best)
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return {str(i): {"logprob": value, "rank": n} for n, (i, value) in enumerate(pairs, 1)}
