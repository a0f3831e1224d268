"""No call of Assay's own uses what the library has deprecated."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import transformers

import assay
from assay.fixtures import families
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Role
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import fresh, prompt

ROOT = str(Path(roles.__file__).parents[2])

CLAIMS = ["C2", "C4", "C5", "C8", "C9", "C10", "G1", "G2", "G6", "G7", "G8"]
"""Laws that use every argument of a pass, generation, and saving."""


class Kept(logging.Handler):
    """Keeps the messages that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def deprecations() -> Iterator[list[str]]:
    """The deprecations that calls in Assay's files cause in a block, or that name an argument."""
    found: list[str] = []
    kept, logger = Kept(), logging.getLogger("transformers")
    transformers.utils.logging.warning_once.cache_clear()
    logger.addHandler(kept)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
    finally:
        logger.removeHandler(kept)
    ours = [w for w in caught if w.filename.startswith(ROOT) and "/tests/" not in w.filename]
    found += [str(w.message) for w in ours if _is_deprecation(w.category)]
    names = {name for role in Role for name in roles.spellings(role) if "_" in name}
    found += [m for m in kept.messages if "deprecated" in m and any(f"`{n}`" in m for n in names)]


def _is_deprecation(category: type[Warning]) -> bool:
    return issubclass(category, FutureWarning | DeprecationWarning | PendingDeprecationWarning)


@pytest.mark.parametrize("model_type", ["bert", *map(nightly, ["llama", "t5", "mamba"])])
def test_no_call_of_assay_is_deprecated(model_type: str) -> None:
    with deprecations() as found:
        assay.check(families.tiny(model_type), claims=CLAIMS, profile="glance")
    assert not found


def test_a_deprecated_name_is_noticed() -> None:
    subject = fresh("llama")
    if roles.bind(subject.model.forward)[Role.CACHE] == roles.SPELLINGS[Role.CACHE][0]:
        pytest.skip("this version of transformers has not renamed its cache")
    output = subject.model(prompt(subject, 3))
    with deprecations() as found:
        _ = output[roles.SPELLINGS[Role.CACHE][0]]
    assert found
