"""What is public: the page lists it, with signatures that the code has and examples that run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator

import pytest

import assay
from assay.harness import faults
from assay.harness.tests.support.sessions import ROOT

PAGE = ROOT / "docs" / "public.md"
ELSEWHERE = {
    *("Compared", "Engine", "Generated", "Lacking", "OwnClaim", "Refuted", "Run"),
    *("Sampling", "Scores", "Undecided"),
}
"""Names that the page mentions and other pages describe."""


def listed() -> Iterator[str]:
    """The entries of the page's lists: a name, or a name with its signature."""
    for block in re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            yield from [line] if "(" in line else line.split()


def present(entry: str) -> str:
    """The entry as the code would have it; raises AttributeError where there is no such name."""
    name, called, _ = entry.partition("(")
    owner_name, _, attribute = name.rpartition(".")
    owner = getattr(assay, owner_name) if owner_name else assay
    if not called:
        fields = getattr(owner, "__dataclass_fields__", {})
        has = attribute in fields or hasattr(owner, attribute)
        assert has or re.search(rf"self\.{attribute}\b", inspect.getsource(owner)), entry
        return entry
    bound = inspect.getattr_static(owner, attribute) if owner_name else getattr(owner, attribute)
    function = getattr(bound, "__func__", bound)
    empty = inspect.Parameter.empty
    if isinstance(function, type) and issubclass(function, Exception):
        return f"{name}(message)"
    signature = inspect.signature(function)
    own = list(signature.parameters.values())
    own = own[1:] if own and own[0].name == "self" else own
    plain = [each.replace(annotation=empty) for each in own]
    return f"{name}{signature.replace(parameters=plain, return_annotation=empty)}"


def test_signatures_are_those_of_the_page() -> None:
    entries = list(listed())
    assert len(entries) > 80
    assert [present(entry) for entry in entries] == entries
    with pytest.raises(AssertionError):
        assert present("cuts(prompt, most)") == "cuts(prompt, most)"


def test_the_page_has_every_public_name() -> None:
    first = {re.split(r"[.(]", entry)[0] for entry in listed()}
    assert first | ELSEWHERE | {"__version__"} == set(assay.__all__)
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ELSEWHERE if f"`{name}`" not in text] == []


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults.catalogue, "FAULTS", dict(faults.FAULTS))
    text = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert found.failed == 0
    assert found.attempted > 25
