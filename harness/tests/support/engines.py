"""Engines in tests: their claims' results, and a small server that answers for one."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from torch import Tensor

from assay.fixtures.subjects import load as load_subject
from assay.harness.checking import catalogue
from assay.harness.checking.cases import Case
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import PROFILES
from assay.harness.cli.main import cases_of_claims
from assay.harness.engines.interface import Engine, Sampling
from assay.harness.engines.own import Own
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Result
from assay.harness.tests.support.sessions import ROOT


def loaded(spec: str, against: str | None = None, dtype: str = "auto") -> Subject:
    """A model or an engine by its name."""
    return load_subject(spec, Options(against=against, dtype=dtype))


@cache
def cases() -> list[Case]:
    """All claims about engines, with their variants."""
    return cases_of_claims(frozenset(catalogue.FOLDER.glob("engines/test_*.py")))


def results(subject: Subject, claims: Sequence[str] = (), seed: int = 0) -> list[Result]:
    """The results of all claims about engines, or of those with these numbers."""
    chosen = [each for each in cases() if not claims or each.claim.id in claims]
    return [each.settle(subject, Session(PROFILES["glance"], seed)) for each in chosen]


def documented() -> type[Engine]:
    """The class in docs/own-engine.md."""
    page = (ROOT / "docs" / "own-engine.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.search(r"```python\n(from|import)(.*?)```", page, re.DOTALL)[0][10:-3], names)
    found: type[Engine] = names["Mine"]
    return found


DAMAGES = ("", "error", "text", "slow", "NaN", "ids", "rows", "no log-probabilities")
"""What is wrong with a server's answers; nothing with the first."""


@contextmanager
def server(own: Own, damage: str = "") -> Iterator[str]:
    """The address of a server whose engine is ``own``; ``damage`` strikes at its third answer."""

    class Handler(BaseHTTPRequestHandler):
        answered = 0

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            Handler.answered += 1
            struck = damage if Handler.answered > 2 else ""
            if struck == "slow":
                time.sleep(1.0)
            answer = damaged(answer_of(own, self.path, body), struck)
            text = "out of memory" if struck == "text" else json.dumps(answer)
            self.send_response(500 if struck == "error" else 200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()


def answer_of(own: Own, path: str, body: dict[str, Any]) -> Any:
    """What the server answers: the whole vocabulary, and the best three while it generates."""
    match path:
        case "/facts":
            return {"vocabulary": own.vocabulary, "context": own.context}
        case "/scores":
            return [{"logits": each.values.tolist()} for each in own.scores(body["prompts"])]
        case "/tokenize":
            return own.tokenize(body["text"])
        case "/chat":
            return own.chat(body["messages"])
    names = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
    sampling = Sampling(body["max_tokens"], **{name: body[name] for name in names})
    return [
        {"ids": each.ids, **best(each.ids, each.scores.values.double().log_softmax(-1))}
        for each in own.generate(body["prompts"], sampling)
    ]


def best(ids: list[int], rows: Tensor) -> dict[str, list[Any]]:
    """Log-probabilities of the best two tokens of each row, and of the chosen one."""
    tokens = torch.cat([torch.tensor(ids)[:, None], rows.topk(3).indices], 1).tolist()
    listed = [[*dict.fromkeys(row)][:3] for row in tokens]
    values = rows.gather(1, torch.tensor(listed))
    return {"logprobs": values.tolist(), "tokens": listed}


def damaged(answer: Any, damage: str) -> Any:
    """``answer`` with something wrong in it."""
    if not isinstance(answer, list) or not answer or not isinstance(answer[0], dict):
        return answer
    first = answer[0]
    if damage == "NaN" and "logits" in first:
        first["logits"][-1][0] = math.nan
    if damage == "rows" and "logits" in first:
        first["logits"] = first["logits"][1:]
    if damage == "ids" and "ids" in first:
        first["ids"] = [10**6 for _ in first["ids"]]
    if damage == "no log-probabilities":
        first.pop("logprobs", None)
    return answer
