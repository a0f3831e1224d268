"""A stored reference: what a model makes of a fixed corpus in float64, and a comparison with it.

The file holds ids, rows in float64 at some positions of each prompt, and how far off the model
itself is there in each dtype.  That calibrates the bounds, so that the model is not needed.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from assay.harness.checking.profiles import PROFILES
from assay.harness.checking.reference import Reference
from assay.harness.models.loading import runs
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject, meant
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import corpus, variants
from assay.harness.operations.parity import compared_prompts, recording, tensors
from assay.harness.operations.parity.recording import rows
from assay.harness.results.errors import BadInput, Missing, brief
from assay.harness.results.quiet import quiet

KEY, VERSION, SUFFIX = "assay reference", 1, ".safetensors"

OF = "the stored reference"
"""Whose prompts they are, in a report."""

SAYS = {"version", "model", "class", "vocabulary", "attends", "weights", "versions"}
"""What a file has to say of the model."""

TEXTS, LENGTH = 4, 64
"""Prompts of the fixed text, and their tokens."""

SIZE = 2**26
"""Bytes of all rows, at most, but for two positions of each prompt."""

MOST_POSITIONS = 64
"""Positions of a prompt whose rows are kept, at most."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""Dtypes in which the model's own rounding is kept; of float64 that to float32 after modules."""


@dataclass(frozen=True)
class Prompt:
    """Ids [1, n] of a prompt, the kept ``positions`` [k], their ``exact`` rows [1, k, features] in
    float64, and the ``errors`` [1, k] of the model's own rows by dtype and by name.
    """

    ids: Tensor
    positions: Tensor
    exact: Rows
    errors: dict[str, dict[str, Tensor]]

    def expected(self, dtype: str | None) -> Reference:
        """Rows that are off by the model's own errors in ``dtype`` (None: by nothing), and the
        exact ones.
        """
        own = dict(self.exact.tensors)
        for name, error in self.errors[dtype].items() if dtype else ():
            own[name] = own[name] * (1 + error[..., None])
        return Reference(Rows(own), self.exact)


@dataclass(frozen=True)
class Stored:
    """A stored reference: its ``prompts``, and what its file says of the model (``about``)."""

    name: str
    about: dict[str, Any]
    prompts: list[Prompt]

    def __str__(self) -> str:
        """The line of a report."""
        kept = sum(len(each.positions) for each in self.prompts)
        versions = self.about["versions"]
        return (
            f"{self.name} ({self.about['class']} {self.about['model']}, rows in float64 at {kept} "
            f"positions, by transformers {versions['transformers']})"
        )


# -- making -------------------------------------------------------------------------------------


def make(subject: Subject, name: str) -> Stored:
    """The reference of ``subject``; raises `BadInput` where it does not run in float64."""
    try:
        with quiet():
            return _made(subject, name)
    except Missing as missing:
        raise BadInput(f"{subject.name}: has no float64 reference ({missing})") from missing
    except ENDS as error:
        raise BadInput(f"{subject.name}: no reference can be made ({brief(error)})") from error


def _made(subject: Subject, name: str) -> Stored:
    exact = reference_of(subject)
    prompts, positions = _prompts(subject), list[Tensor]()
    for ids in prompts:
        if not positions:
            width = sum(each.shape[-1] for each in rows(exact, ids, False).tensors.values())
            most = max(2, SIZE // (8 * width * len(prompts)))
        count = min(ids.shape[1], most, MOST_POSITIONS)
        positions.append(torch.linspace(0, ids.shape[1] - 1, count).round().long().unique())

    def kept(model: Subject) -> list[Rows]:
        pairs = zip(prompts, positions, strict=True)
        return [rows(model, ids, False).at(at) for ids, at in pairs]

    right = [each.map(lambda tensor: tensor.double()) for each in kept(exact)]
    errors: list[dict[str, dict[str, Tensor]]] = [{} for _ in prompts]
    for dtype in DTYPES:
        try:
            own = _own(subject, exact, dtype, kept)
        except (Missing, *ENDS):
            continue  # this dtype is then not calibrated, and says so where it is compared
        for error, mine, theirs in zip(errors, own, right, strict=True):
            error[dtype_name(dtype)] = {
                name: distance(tensor, theirs[name])
                for name, tensor in mine.tensors.items()
                if name != "router gap" and name in theirs.tensors
            }
    about = {
        "version": VERSION,
        "model": subject.name,
        "class": getattr(subject.config, "inner", "") or type(subject.model).__name__,
        "type": subject.config.model_type,
        "vocabulary": subject.vocabulary,
        "dtype": dtype_name(subject.dtype),
        "attends": meant.direction(subject).ways,
        "digest": subject.digest,
        "weights": str(tensors.fingerprint(subject)),
        "text": corpus.TEXT,
        "versions": runs.versions(),
    }
    pairs = zip(prompts, positions, right, errors, strict=True)
    return Stored(name, about, [Prompt(*each) for each in pairs])


def _own(subject: Subject, exact: Subject, dtype: torch.dtype, kept: Any) -> list[Rows]:
    """The rows of the model in ``dtype``; in float64, as it is where modules round to float32."""
    if dtype == torch.float64:
        with (
            recording.rounding_to(exact, torch.float32),
            recording.moved_tables(exact, torch.float32),
        ):
            return list(kept(exact))
    return list(kept(subject if dtype == subject.dtype else variants.in_dtype(subject, dtype)))


def _prompts(subject: Subject) -> list[Tensor]:
    """Prompts [1, n]: parts of the fixed text, if there is a tokenizer, and random ids."""
    profile = PROFILES["quick"]
    subject.settings = dataclasses.replace(subject.settings, reach=profile.reach)
    random = compared_prompts.prompts(subject, subject, profile, 0)[: profile.examples]
    texts: list[Tensor] = []
    tokenizer: Any = subject.tokenizer
    if tokenizer is not None:
        numbers = tokenizer(corpus.WHOLE, add_special_tokens=False, verbose=False)["input_ids"]
        length = min(LENGTH, subject.context or LENGTH)
        parts = torch.tensor(numbers).split(length)[:TEXTS]
        texts = [part[None] for part in parts if len(part) >= max(2, subject.shortest)]
        texts = [subject.content(ids.to(subject.device)).cpu() for ids in texts]
    return [*texts, *(each[:1] for each in random)]


# -- the file -----------------------------------------------------------------------------------


def write(stored: Stored, path: Path) -> None:
    """Write ``stored``; raises `OSError`."""
    content: dict[str, Tensor] = {}
    for i, each in enumerate(stored.prompts):
        content |= {f"{i}/ids": each.ids, f"{i}/positions": each.positions}
        content |= {f"{i}/rows/{name}": rows for name, rows in each.exact.tensors.items()}
        for dtype, errors in each.errors.items():
            content |= {f"{i}/error/{dtype}/{name}": error for name, error in errors.items()}
    content = {name: tensor.contiguous() for name, tensor in content.items()}
    save_file(content, path, {KEY: json.dumps(stored.about)})


def read(path: Path) -> Stored:
    """The reference that ``path`` holds; raises `BadInput`."""
    try:
        with safe_open(path, "pt") as file:
            metadata = (file.metadata() or {}).get(KEY)
            if metadata is None:
                raise BadInput(f"{path}: is no stored reference; `assay reference` writes one")
            about = json.loads(metadata)
            if about.get("version") != VERSION:
                raise BadInput(f"{path}: is of another version of Assay; write it again")
            content = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if lacks := sorted(SAYS - about.keys()):
            raise ValueError(f"it does not say {', '.join(lacks)}")
        count = sum(name.endswith("/ids") for name in content)
        prompts = [_prompt(content, f"{i}/") for i in range(count)]
        if not prompts or not all(each.exact.tensors for each in prompts):
            raise ValueError("it holds no rows")
        return Stored(str(path), about, prompts)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: cannot be read as a stored reference ({brief(error)})") from error


def _prompt(content: dict[str, Tensor], of: str) -> Prompt:
    errors: dict[str, dict[str, Tensor]] = {}
    exact = {}
    for name, tensor in content.items():
        part, _, rest = name.removeprefix(of).partition("/")
        if name.startswith(of) and part == "rows":
            exact[rest] = tensor
        elif name.startswith(of) and part == "error":
            dtype, _, row = rest.partition("/")
            errors.setdefault(dtype, {})[row] = tensor
    return Prompt(content[f"{of}ids"], content[f"{of}positions"], Rows(exact), errors)


def require_one_vocabulary(one: Subject, stored: Stored) -> None:
    """Raise `BadInput` where ``one`` has another vocabulary than the model of ``stored``."""
    if one.vocabulary != stored.about["vocabulary"]:
        raise BadInput(
            f"{one.name} has a vocabulary of {one.vocabulary} and {stored.name} of "
            f"{stored.about['vocabulary']}: the same ids cannot go to both"
        )
