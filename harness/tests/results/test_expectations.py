"""Expectations: files read strictly, results judged strictly both ways, verdicts written down."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.results.errors import BadInput
from assay.harness.results.expectation_files import emit, load, record
from assay.harness.results.expectations import Expected, held_against, judge, lacks_held_against
from assay.harness.results.verdicts import HIDDEN, Kind, Result, Verdict

LAW, FINDING = Kind.LAW, Kind.FINDING
UPHELD, REFUTED = Verdict.UPHELD, Verdict.REFUTED
OPEN, NOT = Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE


def result(id="C8", verdict=UPHELD, kind=FINDING, name="they agree", subject="m", reason=""):
    return Result(id, name, kind, subject, verdict, reason=reason)


def write(folder: Path, text: str, name: str = "m.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def entry(**values: str) -> str:
    lines = [f'{key} = "{value}"' for key, value in values.items()]
    return "\n".join(["", "[[claim]]", *lines, ""])


def together(*claims: str, **values: str) -> str:
    return entry(**values) + f"claims = {json.dumps(claims)}\n"


def claims_in(text: str) -> list[dict]:
    """The entries of a file as another reader has them, those of several claims one by one."""
    found = []
    for row in tomllib.loads(text).get("claim", []):
        for told in row.pop("claims", [None]):
            claim, colon, name = (told or "").partition(": ")
            found.append(row | ({"id": claim} if told else {}) | ({"name": name} if colon else {}))
    return found


MODEL = 'model = "m"\n'
C8 = entry(id="C8", verdict="refuted", reason="because")


# Judging.


@pytest.mark.parametrize(
    ("kind", "verdict", "expected", "status"),
    [
        # No entry: upheld or not applicable.
        *[(kind, UPHELD, None, "as expected") for kind in Kind],
        *[(kind, NOT, None, "as expected") for kind in Kind],
        *[(kind, REFUTED, None, "unexpected") for kind in Kind],
        # An inconclusive law is never right, an inconclusive finding is undecided.
        *[(LAW, OPEN, expected, "unexpected") for expected in (None, *Verdict)],
        *[(FINDING, OPEN, expected, "inconclusive") for expected in (None, OPEN)],
        *[(FINDING, OPEN, expected, "unexpected") for expected in (UPHELD, REFUTED, NOT)],
        # An entry that matches, and every one that does not.
        *[(kind, v, v, "as expected") for kind in Kind for v in (UPHELD, REFUTED, NOT)],
        *[
            (kind, verdict, expected, "unexpected")
            for kind in Kind
            for verdict in (UPHELD, REFUTED, NOT)
            for expected in Verdict
            if expected is not verdict
        ],
    ],
)
def test_a_result_is_judged_strictly_both_ways(kind, verdict, expected, status):
    entry = None if expected is None else Expected(expected, "because", "m.toml, claim 1")
    judgement = judge(result(verdict=verdict, kind=kind), entry)
    assert (judgement.status, judgement.ok) == (status, status == "as expected")
    assert f"C8 (they agree) on m is {verdict}" in judgement.message
    assert entry is None or verdict is OPEN or entry.where in judgement.message


def test_an_entry_that_no_longer_matches_says_so_and_where_it_is():
    judgement = judge(result(), Expected(REFUTED, "because", "m.toml, claim 1 ('C8')"))
    assert judgement.message == (
        "C8 (they agree) on m is upheld, but m.toml, claim 1 ('C8') expects refuted, "
        "which no longer matches"
    )


def test_an_expected_refutation_gives_the_reason_of_the_file():
    judgement = judge(result(verdict=REFUTED), Expected(REFUTED, "too small", "m.toml, claim 1"))
    assert judgement.message.endswith("as m.toml, claim 1 expects: too small")


def test_what_does_not_apply_or_is_not_decided_gives_its_own_reason():
    for verdict in (NOT, OPEN):
        assert judge(result(verdict=verdict, reason="no cache"), None).message.endswith("no cache")


# Reading.


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
    found = load(tmp_path)["m"]
    assert list(found.entries) == one_by_one
    for key in one_by_one:
        where = f"{tmp_path / 'm.toml'}, claim 1 ({key[0]!r})"
        assert found.entries[key] == Expected(REFUTED, "one cause", where, sometimes=True)
    assert found.expected("C2", "any").reason == "one cause"
    assert found.expected("C8", "dynamic") is None
    seen = [result("C8", name="static"), result("C2")]
    assert found.unmatched(seen) == [f"{tmp_path / 'm.toml'}, claim 1 ('C8'): a: b [c]"]


def test_no_folder_means_no_expectations(tmp_path):
    assert load(tmp_path / "nowhere") == {}


def test_entries_that_no_result_is_about_are_named(tmp_path):
    named = entry(id="C2", name="static", verdict="upheld")
    write(tmp_path, MODEL + C8 + named + entry(id="C3", verdict="upheld"))
    expectations = load(tmp_path)["m"]
    seen = [result("C8"), result("C2", name="dynamic"), result("C3", subject="another")]
    first, second = expectations.unmatched(seen)
    assert (first[-14:], second[-6:]) == ("('C2'): static", "('C3')")
    seen += [result("C2", name="static"), result("C3")]
    assert expectations.unmatched(seen) == []


REASONLESS = [entry(id="C8", verdict=v) for v in ("refuted", "inconclusive", "not applicable")]
BAD = {
    "not TOML": ("model = ", "not TOML: Invalid value"),
    "too deep": ("model = " + "[" * 3000, "not TOML"),
    "no model": (C8, "model is missing or empty"),
    "empty model": ('model = ""', "model is missing or empty"),
    "model is a number": ("model = 5", "model is 5, not a str"),
    "unknown key": (MODEL + "modle = 1", "unknown key 'modle'"),
    "claims are no list": (MODEL + "[claim]\nid = 'C8'", "claim is {'id': 'C8'}, not a list"),
    "claim is no table": (MODEL + "claim = ['C8']", "claim 1: not a table"),
    "no id": (MODEL + entry(verdict="upheld"), "claim 1: id is missing"),
    "no verdict": (MODEL + C8 + entry(id="C9"), "claim 2: verdict is missing"),
    "unknown verdict": (MODEL + entry(id="C8", verdict="passed"), "'passed' is no verdict"),
    "unknown entry key": (MODEL + C8 + 'why = "x"', "claim 1: unknown key 'why'"),
    "id is a number": (MODEL + "[[claim]]\nid = 8", "claim 1: id is 8, not a str"),
    "claims beside an id": (MODEL + together("C2", id="C8", verdict="upheld"), "id and claims"),
    "claims beside a name": (
        MODEL + together("C2", name="x", verdict="upheld"),
        "name and claims",
    ),
    "no claims": (MODEL + together(verdict="upheld"), "claim 1: claims is missing or empty"),
    "claims are a text": (MODEL + entry(claims="C8", verdict="upheld"), "'C8', not a list"),
    "a claim is a number": (MODEL + entry(verdict="upheld") + "claims = [8]", "has 8, not a str"),
    **{
        f"a claim is {text!r}": (
            MODEL + together("C2", text, verdict="upheld"),
            f"has {text!r}; write",
        )
        for text in ("", "C8:", "C8: ", ": they agree")
    },
    "doubled in a list": (
        MODEL + together("C8: a", "C2", "C8:a", verdict="upheld"),
        "claim 1 ('C8'): a: stands there already as",
    ),
    "doubled beside a list": (MODEL + C8 + together("C2", "C8", verdict="upheld"), "2 ('C8'): st"),
    "no reason for several": (
        MODEL + together("C2", "C8", verdict="refuted"),
        "('C2'): refuted needs",
    ),
    "blank": (MODEL + entry(id="C8", verdict="refuted", reason="  "), "needs a reason"),
    "two lines in an id": (MODEL + entry(id="a\\nb", verdict="no"), "('a\\nb')"),
    "doubled": (MODEL + C8 + C8, "claim 2 ('C8'): stands there already as"),
    **{f"no reason {n}": (MODEL + text, "needs a reason") for n, text in enumerate(REASONLESS)},
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


def test_upheld_needs_no_reason_and_names_of_one_number_are_not_doubled(tmp_path):
    names = "".join(entry(id="C8", name=name, verdict="upheld") for name in ("a", "b"))
    write(tmp_path, MODEL + names)
    assert len(load(tmp_path)["m"].entries) == 2


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


# Writing.


def test_every_verdict_of_the_subject_is_written_in_order_and_waits_for_its_reasons(tmp_path):
    results = [
        result("C10"),
        result("C8", REFUTED),
        result("C2", OPEN),
        result("B1", REFUTED, LAW),
    ]
    results += [result("C9", NOT, reason="no cache"), result("C1", REFUTED, subject="another")]
    path = record(tmp_path / "new", "m", results)
    rows = claims_in(path.read_text())
    assert [row["id"] for row in rows] == ["B1", "C2", "C8", "C9", "C10"]
    assert [row.get("reason") for row in rows] == ["", "", "", "no cache", None]
    with pytest.raises(BadInput, match=r"claim 1 \('B1'\): refuted needs a reason"):
        load(path.parent)
    path.write_text(path.read_text().replace('reason = ""', 'reason = "known"'))
    expectations = load(path.parent)["m"]
    assert [judge(r, expectations.expected(r.id, r.name)).status for r in results[:2]] == [
        "as expected",
        "as expected",
    ]


PATTERN = """model = "tiny:*"\n""" + entry(id="C8", verdict="refuted", reason="untrained")
OWN = 'model = "tiny:opt"\n' + entry(id="C8", verdict="upheld")


@pytest.mark.parametrize(
    ("model", "verdict", "status"),
    [
        ("tiny:llama", REFUTED, "as expected"),
        ("tiny:llama", UPHELD, "unexpected"),
        ("tiny:llama", NOT, "as expected"),
        ("tiny:llama", OPEN, "inconclusive"),
        ("tiny:opt", UPHELD, "as expected"),  # its own file comes first
        ("tiny:opt", REFUTED, "unexpected"),
        ("reference", REFUTED, "unexpected"),  # does not fit
    ],
)
def test_a_pattern_holds_for_models_whose_own_files_say_nothing(tmp_path, model, verdict, status):
    write(tmp_path, PATTERN, "tiny.toml")
    write(tmp_path, OWN, "tiny-opt.toml")
    every = load(tmp_path)
    assert held_against(every, result(verdict=verdict, subject=model), "float32").status == status


@pytest.mark.parametrize(
    ("model", "verdict", "status"),
    [
        ("tiny:mamba", REFUTED, "as expected"),
        ("tiny:mamba", UPHELD, "unexpected"),
        ("tiny:mamba:7", REFUTED, "as expected"),
        ("tiny:mamba:7", UPHELD, "as expected"),  # allowed, not demanded
        ("tiny:mamba:7", NOT, "as expected"),
        ("tiny:mamba:8", REFUTED, "unexpected"),  # it has a file of its own
        ("tiny:mamba:7:8", REFUTED, "unexpected"),
        ("tiny:mamba:causal", REFUTED, "unexpected"),
        ("tiny:mamba2:7", REFUTED, "unexpected"),
        ("tiny:mamba:7+no-mask", REFUTED, "unexpected"),
    ],
)
def test_a_file_allows_its_verdicts_to_other_seeds_of_its_model(tmp_path, model, verdict, status):
    write(tmp_path, 'model = "tiny:mamba"\n' + C8, "tiny-mamba.toml")
    write(tmp_path, 'model = "tiny:mamba:8"\n', "tiny-mamba-8.toml")
    held = held_against(load(tmp_path), result(verdict=verdict, subject=model), "float32")
    assert held.status == status


def test_another_seed_s_undecided_law_is_still_unexpected(tmp_path):
    write(tmp_path, 'model = "tiny:mamba"\n' + C8, "tiny-mamba.toml")
    undecided = result(verdict=OPEN, kind=LAW, subject="tiny:mamba:7")
    assert held_against(load(tmp_path), undecided, "float32").fails


@pytest.mark.parametrize(
    ("dtype", "verdict", "status"),
    [
        ("float32", UPHELD, "unexpected"),
        ("float32", REFUTED, "as expected"),
        ("bfloat16", UPHELD, "as expected"),
        ("bfloat16", REFUTED, "as expected"),
    ],
)
def test_a_file_demands_verdicts_in_its_own_dtype_only(tmp_path, dtype, verdict, status):
    write(tmp_path, MODEL + C8)
    assert held_against(load(tmp_path), result(verdict=verdict), dtype).status == status


@pytest.mark.parametrize(
    ("more", "status"), [("sometimes = true\n", "inconclusive"), ("", "unexpected")]
)
def test_a_finding_that_is_refuted_sometimes_may_be_left_open(tmp_path, more, status):
    write(tmp_path, MODEL + C8 + more)
    open_ = result(verdict=Verdict.INCONCLUSIVE)
    assert judge(open_, load(tmp_path)["m"].entries["C8", None]).status == status


@pytest.mark.parametrize(("kind", "status"), [(LAW, "as expected"), (FINDING, "unexpected")])
def test_a_law_that_is_broken_sometimes_may_be_upheld(tmp_path, kind, status):
    write(tmp_path, MODEL + C8 + "sometimes = true\n")
    every = load(tmp_path)
    assert held_against(every, result(kind=kind), "float32").status == status
    assert held_against(every, result(verdict=REFUTED, kind=kind), "float32").ok
    record(tmp_path, "m", [result(kind=LAW)])
    assert load(tmp_path)["m"].entries["C8", None].sometimes


def test_a_file_of_another_dtype_is_not_recorded_over(tmp_path):
    path = record(tmp_path, "m", [result("C8", REFUTED)], "bfloat16")
    assert 'dtype = "bfloat16"' in path.read_text()
    with pytest.raises(BadInput, match="is of bfloat16; a run in float32 cannot"):
        record(tmp_path, "m", [result("C8", REFUTED)])


def test_a_reason_stays_as_long_as_the_verdict_does(tmp_path):
    write(tmp_path, MODEL + C8 + entry(id="C9", verdict="refuted", reason="gone"))
    path = record(tmp_path, "m", [result("C8", REFUTED), result("C9", OPEN)])
    rows = claims_in(path.read_text())
    assert [row["reason"] for row in rows] == ["because", ""]


def test_writing_the_same_results_again_changes_no_byte(tmp_path):
    results = [result("C8", REFUTED, name=name) for name in "ba"] + [result("C2", NOT, reason="x")]
    path = record(tmp_path, "m", results)
    before = path.read_bytes()
    assert record(tmp_path, "m", reversed(results)) == path
    assert path.read_bytes() == before


def test_names_are_written_only_where_a_number_has_several_tests(tmp_path):
    results = [result("C8", name="a"), result("C8", REFUTED, name="b"), result("C9", name="c")]
    rows = claims_in(record(tmp_path, "m", results).read_text())
    assert {(row["id"], row.get("name")) for row in rows} == {
        ("C8", "a"),
        ("C8", "b"),
        ("C9", None),
    }


def test_a_run_of_a_few_claims_keeps_the_entries_of_the_others(tmp_path):
    named = entry(id="C2", name="static", verdict="refuted", reason="kept")
    write(tmp_path, MODEL + C8 + named)
    record(tmp_path, "m", [result("C2", name="dynamic")])
    expectations = load(tmp_path)["m"]
    assert expectations.expected("C8", "any").reason == "because"
    assert expectations.expected("C2", "static").reason == "kept"
    assert expectations.expected("C2", "dynamic").verdict is UPHELD
    assert expectations.expected("C2", "another") is None


def test_a_file_is_named_after_its_model_and_never_takes_that_of_another(tmp_path):
    names = ["reference:large", "org/model", "org:model", "../../up", "é", "ORG-MODEL", "x" * 300]
    paths = [record(tmp_path, name, [result(subject=name)]) for name in names]
    assert [path.name for path in paths[:2]] == ["reference-large.toml", "org-model.toml"]
    assert {path.parent for path in paths} == {tmp_path}
    assert len({path.name.lower() for path in paths}) == len(names)
    assert set(load(tmp_path)) == set(names)
    assert [record(tmp_path, name, []) for name in names] == paths


def test_a_file_that_was_renamed_is_found_by_its_model(tmp_path):
    path = write(tmp_path, MODEL + C8, "renamed.toml")
    assert record(tmp_path, "m", [result("C8", REFUTED)]) == path
    assert load(tmp_path)["m"].expected("C8", "any").reason == "because"


def test_a_broken_file_is_not_overwritten(tmp_path):
    path = write(tmp_path, "model = ")
    with pytest.raises(BadInput, match="not TOML"):
        record(tmp_path, "m", [result()])
    assert path.read_text() == "model = "


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="its folder is a file"):
        record(tmp_path / "file", "m", [result()])


def test_a_name_that_is_not_unicode_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="is not Unicode"):
        record(tmp_path, "caf\udce9", [])


keys = st.tuples(st.text(min_size=1), st.none() | st.text())
texts = st.text() | st.text("\"\\\n\r\t\b\f\0\x1b\x7f\u0085\u2028\ufeff'#=[]{}é", max_size=9)


reasons = st.sampled_from(["", "one cause"]) | texts
said = st.builds(Expected, st.sampled_from(Verdict), reasons, st.just(""), st.booleans())


@settings(deadline=None)
@given(st.text(min_size=1), st.dictionaries(keys, said))
def test_what_is_written_is_read_back_by_another_reader(model, rows):
    text = emit(model, rows)
    assert tomllib.loads(text)["model"] == model
    assert {
        (row["id"], row.get("name")): Expected(
            Verdict(row["verdict"]), row.get("reason", ""), "", row.get("sometimes", False)
        )
        for row in claims_in(text)
    } == rows


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.tuples(st.sampled_from(["C2", "C8"]), st.none() | texts), said))
def test_what_is_written_is_read_back_by_load(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("expectations")
    rows = {k: e for k, e in rows.items() if e.reason.strip() or e.verdict is UPHELD}
    write(folder, emit("m", rows))
    found = load(folder)["m"].entries
    assert {key: replace(each, where="") for key, each in found.items()} == rows


def test_claims_of_one_cause_are_written_together_and_those_without_a_reason_apart():
    because = Expected(REFUTED, "because", "")
    rows = {
        **{("C8", "b"): because, ("C2", None): because, ("C8", "a"): because},
        **{("C9", name): Expected(REFUTED, "", "") for name in ("a", "b")},
        **{("C1", None): Expected(UPHELD, "", ""), ("C10", "a"): Expected(UPHELD, "", "")},
        ("C8", "c"): replace(because, sometimes=True),
        ("C:3", "an id that cannot stand in a list"): because,
    }
    entries = tomllib.loads(emit("m", rows))["claim"]
    assert [entry.get("claims", entry.get("id")) for entry in entries] == [
        ["C1", "C10: a"],
        ["C2", "C8: a", "C8: b"],
        *("C8", "C9", "C9", "C:3"),
    ]


def test_a_run_of_one_claim_leaves_the_others_of_its_cause_as_they_were(tmp_path):
    claims = ("C8: a", "C8: b", "C2")
    write(tmp_path, MODEL + together(*claims, verdict="refuted", reason="because"))
    path = record(tmp_path, "m", [result("C8", name="b"), result("C8", REFUTED, name="a")])
    assert [(r["id"], r.get("name"), r["verdict"]) for r in claims_in(path.read_text())] == [
        ("C2", None, "refuted"),
        ("C8", "a", "refuted"),
        ("C8", "b", "upheld"),
    ]
    assert load(tmp_path)["m"].expected("C8", "a").reason == "because"


@settings(deadline=None, max_examples=50)
@given(texts)
def test_a_reason_of_any_characters_survives_the_file(tmp_path_factory, reason):
    folder = tmp_path_factory.mktemp("expectations")
    record(folder, "m", [result("C8", NOT, reason=reason), result("C9", NOT, reason="x")])
    text = (folder / "m.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["claim"][0]["reason"] == reason


# Capabilities.


def a_lack(tmp_path, text, **settings):
    """What is wrong with a gpt2 that lacks `cache`, by a file of expectations."""
    (tmp_path / "gpt2.toml").write_text(text)
    recorded = {"type": "causal:gpt2", "version": "5.23", "lacks": {"cache": "it gives none"}}
    recorded |= settings.pop("recorded", {})
    asked = {"subject": "tiny:gpt2", "dtype": "float32"} | settings
    return lacks_held_against(load(tmp_path), recorded=recorded, **asked)


LACK = 'model = "tiny:gpt2"\n\n[[capability]]\nname = "cache"\nreason = "a defect"\n'
LINE = "lacks `cache`, which causal:gpt2 has in transformers 5.23: it gives none"


def test_a_lost_capability_is_wrong_unless_the_model_s_file_allows_it(tmp_path):
    assert a_lack(tmp_path, 'model = "tiny:gpt2"\n') == [f"tiny:gpt2 {LINE}"]
    assert a_lack(tmp_path, LACK) == []
    assert a_lack(tmp_path, LACK, subject="tiny:gpt2:7") == []
    assert a_lack(tmp_path, LACK, dtype="bfloat16") == []
    assert a_lack(tmp_path, LACK, subject="tiny:llama") == [f"tiny:llama {LINE}"]
    planted = "tiny:gpt2+future-seen-by-one"
    assert a_lack(tmp_path, LACK, subject=planted) == [f"{planted} {LINE}"]


def test_a_lack_that_is_allowed_must_be_there_in_the_model_and_dtype_of_the_file(tmp_path):
    (told,) = a_lack(tmp_path, LACK, recorded={"lacks": {}})
    assert told.startswith("tiny:gpt2 has `cache`, and ")
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}}, dtype="bfloat16") == []
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}}, subject="tiny:gpt2:7") == []
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}, "type": None}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("capability = [1]", "not a table; write"),
        ('[[capability]]\nname = "cache"', "reason is missing or empty"),
        ('[[capability]]\nreason = "x"', "name is missing or empty"),
        (LACK.partition("\n\n")[2] * 2, "'cache' stands there already"),
        ('[[capability]]\nname = "cache"\nreason = "x"\nid = "C1"', "unknown key 'id'"),
    ],
)
def test_an_entry_of_a_capability_is_read_strictly(tmp_path, text, said):
    with pytest.raises(BadInput, match=said):
        a_lack(tmp_path, f'model = "tiny:gpt2"\n{text}\n')


def test_recording_keeps_what_a_model_may_lack(tmp_path):
    (tmp_path / "gpt2.toml").write_text(LACK)
    record(tmp_path, "tiny:gpt2", [])
    assert load(tmp_path)["tiny:gpt2"].lacks == {"cache": "a defect"}


@pytest.mark.parametrize(("hidden", "status"), [(True, "inconclusive"), (False, "unexpected")])
def test_a_law_that_rounding_hides_in_16_bits_fails_no_run(hidden, status):
    open_ = replace(result("F1", OPEN, LAW, reason="too blunt"), details={HIDDEN: hidden})
    assert judge(open_, None).status == status
    assert not judge(open_, None).ok
    assert judge(replace(open_, verdict=REFUTED), None).fails
