"""ONNX Runtime: an export of onnxruntime-genai, or a folder of transformers, exported first."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai

from assay.harness.engines import libraries
from assay.harness.engines.interface import Chat, Engine, Generated, Ids, Sampling, Scores
from assay.harness.results.errors import BadInput

USUAL = {"type": "fp32", "threads": "1"}
"""The options, with what they are where they are left out."""

TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int4": "float32"}
"""Types of an export, and what is computed in."""

LONGEST = 512
"""Tokens of a request with its answer."""

MOST = 32
"""Requests of a batch."""


class OnnxRuntime(Engine):
    """``FOLDER[,type=fp32|fp16|bf16|int4][,threads=N]``."""

    def __init__(self, what: str) -> None:
        path, options = libraries.read(what, USUAL)
        folder, kind = Path(path), options["type"]
        if not (folder / "genai_config.json").is_file():
            self._exported = tempfile.TemporaryDirectory(prefix="assay-")
            folder = Path(self._exported.name)
            _export(path, folder, kind)
        facts = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
        threads = {"intra_op_num_threads": libraries.number(options, "threads")}
        config = onnxruntime_genai.Config(str(folder))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self.model = onnxruntime_genai.Model(config)
        self.name = f"ONNX Runtime GenAI {onnxruntime_genai.__version__}"
        self.vocabulary, self._pad = facts["vocab_size"], facts["pad_token_id"]
        self.longest = libraries.longest(self.vocabulary)
        ends = facts["eos_token_id"]
        self._ends = {ends} if isinstance(ends, int) else set(ends)
        self.context = min(facts["context_length"], LONGEST)
        self.special = frozenset({self._pad})  # no prompt can have what pads batches
        self.dtype = TYPES[kind]
        self.stored = kind if kind == "int4" else ""
        self._cached, self._warm = list[int](), self._generator(1)
        try:
            self.tokenizer = onnxruntime_genai.Tokenizer(self.model)
        except Exception as error:  # it knows fewer tokenizers than models
            reason = f"{self.name} does not read the tokenizer: {error}"
            self.lacks = {"engine-tokens": reason, "engine-chats": reason}

    def _generator(self, requests: int, **options: Any) -> Any:
        if requests > MOST:
            raise NotImplementedError(f"it takes at most {MOST} requests at once")
        parameters = onnxruntime_genai.GeneratorParams(self.model)
        longest = {"max_length": self.context, "batch_size": requests}
        parameters.set_search_options(**longest, **options)
        return onnxruntime_genai.Generator(self.model, parameters)

    def _batch(self, requests: Sequence[Ids]) -> Any:
        """Requests [batch, n], padded on the right as `Tokenizer.encode_batch` does."""
        longest = max(map(len, requests))
        rows = [[*ids, *[self._pad] * (longest - len(ids))] for ids in requests]
        return np.array(rows, dtype=np.int32)

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """One padded pass for all, or one for each after what it shares with the last one."""
        if not cold:
            return [self._after_prefix(list(ids)) for ids in requests]
        generator = self._generator(len(requests))
        generator.append_tokens(self._batch(requests))
        rows = generator.get_output("logits")
        return [Scores(row[: len(ids)]) for row, ids in zip(rows, requests, strict=True)]

    def _after_prefix(self, ids: Ids) -> Scores:
        most = min(len(ids) - 1, len(self._cached))
        shared = next((i for i in range(most) if ids[i] != self._cached[i]), most)
        self._warm.rewind_to(shared)
        self._warm.append_tokens(np.array([ids[shared:]], dtype=np.int32))
        self._cached = ids
        return Scores(self._warm.get_output("logits")[0], first=shared)

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """In one batch, which ends when every text has; requests of one length together."""
        if len({len(each) for each in requests}) > 1:
            return [self.generate([each], sampling)[0] for each in requests]
        how = {
            "do_sample": bool(sampling.temperature),
            "temperature": sampling.temperature or 1.0,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "repetition_penalty": sampling.repetition_penalty,
            "random_seed": sampling.seed,
        }
        generator = self._generator(len(requests), **how)
        generator.append_tokens(self._batch(requests))
        rows = []
        for _ in range(sampling.tokens):
            if generator.is_done():
                break
            generator.generate_next_token()
            rows.append(generator.get_output("logits")[:, -1].copy())
        scores = np.stack(rows, 1)
        texts = []
        for number, ids in enumerate(requests):
            new = generator.get_sequence(number)[len(ids) :].tolist()
            end = next((i for i, each in enumerate(new) if each in self._ends), len(new))
            new = new[: end + 1]  # after its end, a text of a batch is padded
            texts.append(Generated(new, Scores(scores[number, : len(new)], first=len(ids) - 1)))
        return texts

    def tokenize(self, text: str) -> Ids:
        """By the export's tokenizer, which adds nothing to a text unless it is asked to."""
        return self._encoded(text, special=True)

    def _encoded(self, text: str, special: bool) -> Ids:
        self.tokenizer.update_options(add_special_tokens=str(special).lower())
        return [int(each) for each in self.tokenizer.encode(text)]

    def chat(self, messages: Chat) -> Ids:
        """By the export's template."""
        chat = json.dumps(messages)
        text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        return self._encoded(text, special=False)


def _export(path: str, folder: Path, kind: str) -> None:
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command = [*builder, "-m", path, "-o", str(folder), "-p", kind, "-e", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        (*_, last) = ["ended without a word", *done.stderr.split("\n")[-2:-1]]
        raise BadInput(f"{path}: the builder of onnxruntime-genai: {last}")
