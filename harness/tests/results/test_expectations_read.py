"""Files of expectations are read strictly: a mistake is refused in one line."""

from __future__ import annotations

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.expectation_files import load
from assay.harness.results.expectations import Expected
from assay.harness.tests.support.expected import (
    C8,
    MODEL,
    REFUTED,
    UPHELD,
    entry,
    result,
    together,
    write,
)


def test_a_folder_is_read_by_model_whatever_its_files_are_called(tmp_path):
    write(tmp_path, MODEL + C8)
    write(tmp_path, 'model = "org/other"', "x.toml")
    write(tmp_path, "not read", "README.md")
    models = load(tmp_path)
    assert sorted(models) == ["m", "org/other"]
    where = f"{tmp_path / 'm.toml'}, claim 1 ('C8')"
    assert models["m"].expected("C8", "any") == Expected(REFUTED, "because", where)
    assert models["m"].expected("C9", "any") is None
    assert models["org/other"].expected("C8", "any") is None


def test_an_entry_with_a_name_goes_before_one_without(tmp_path):
    write(tmp_path, MODEL + C8 + entry(id="C8", name="flex", verdict="upheld"))
    expectations = load(tmp_path)["m"]
    assert expectations.expected("C8", "flex").verdict is UPHELD
    assert expectations.expected("C8", "sdpa").verdict is REFUTED


def test_an_entry_may_be_about_several_claims(tmp_path):
    more = "sometimes = true\n"
    claims = ("C8: a: b [c]", "C8:static", "C2")
    write(tmp_path, MODEL + together(*claims, verdict="refuted", reason="one cause") + more)
    one_by_one = [("C8", "a: b [c]"), ("C8", "static"), ("C2", None)]
    expectations = load(tmp_path)["m"]
    assert list(expectations.entries) == one_by_one
    for key in one_by_one:
        where = f"{tmp_path / 'm.toml'}, claim 1 ({key[0]!r})"
        assert expectations.entries[key] == Expected(REFUTED, "one cause", where, sometimes=True)
    assert expectations.expected("C2", "any").reason == "one cause"
    assert expectations.expected("C8", "dynamic") is None
    results = [result("C8", name="static"), result("C2")]
    assert expectations.unmatched(results) == [f"{tmp_path / 'm.toml'}, claim 1 ('C8'): a: b [c]"]


def test_entries_that_no_result_is_about_are_named(tmp_path):
    named = entry(id="C2", name="static", verdict="upheld")
    write(tmp_path, MODEL + C8 + named + entry(id="C3", verdict="upheld"))
    expectations = load(tmp_path)["m"]
    results = [result("C8"), result("C2", name="dynamic"), result("C3", subject="another")]
    first, second = expectations.unmatched(results)
    assert (first[-14:], second[-6:]) == ("('C2'): static", "('C3')")
    results += [result("C2", name="static"), result("C3")]
    assert expectations.unmatched(results) == []


EITHER = "claim 1: give either an id"
BAD = {
    "not TOML": ("model = ", "not TOML: Invalid value"),
    "too deep": ("model = " + "[" * 3000, "not TOML"),
    "no model": (C8, "missing required field `model`"),
    "unknown key": (MODEL + "modle = 1", "unknown field `modle`"),
    "no verdict": (MODEL + C8 + entry(id="C9"), "field `verdict` - at `$.claim[1]`"),
    "unknown verdict": (MODEL + entry(id="C8", verdict="passed"), "Invalid enum value 'passed'"),
    "no id": (MODEL + entry(verdict="upheld"), EITHER),
    "claims beside an id": (MODEL + together("C2", id="C8", verdict="upheld"), EITHER),
    "no claims": (MODEL + together(verdict="upheld"), "length >= 1 - at `$.claim[0].claims`"),
    **{
        f"a claim is {text!r}": (
            MODEL + together("C2", text, verdict="upheld"),
            f"has {text!r}; write",
        )
        for text in ("C8: ", ": they agree")
    },
    "doubled in a list": (
        MODEL + together("C8: a", "C2", "C8:a", verdict="upheld"),
        "claim 1 ('C8'): a: is already listed as",
    ),
    "doubled beside a list": (
        MODEL + C8 + together("C2", "C8", verdict="upheld"),
        "2 ('C8'): is already",
    ),
    "no reason for several": (
        MODEL + together("C2", "C8", verdict="refuted"),
        "('C2'): refuted needs",
    ),
    "blank": (MODEL + entry(id="C8", verdict="refuted", reason="  "), "needs a reason"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_with_a_mistake_is_refused_with_one_line(tmp_path, kind):
    text, words = BAD[kind]
    path = write(tmp_path, text)
    with pytest.raises(BadInput) as error:
        load(tmp_path)
    assert words in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_files_that_are_folders_are_refused(tmp_path):
    path = tmp_path / "m.toml"
    path.write_bytes(b'model = "\xff"')
    with pytest.raises(BadInput, match="not TOML"):
        load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadInput, match=r"cannot be read \(Is a directory\)"):
        load(tmp_path)


def test_one_model_in_two_files_is_refused(tmp_path):
    write(tmp_path, MODEL)
    second = write(tmp_path, MODEL, "n.toml")
    with pytest.raises(BadInput, match=r"has its expectations in .*m\.toml already") as error:
        load(tmp_path)
    assert str(error.value).startswith(str(second))
