"""The kill matrix: a sample of it with every law and every kind of family, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

import pytest

from assay.fixtures.kinds import KINDS
from assay.fixtures.prompts import prompts
from assay.harness import faults
from assay.harness.checking import cases
from assay.harness.checking.laws import law
from assay.harness.checking.profiles import Profile
from assay.harness.cli import kills as command
from assay.harness.cli import main as harness_main
from assay.harness.cli.kills import Rooms, Task
from assay.harness.faults import kills, named
from assay.harness.faults.kills import Baseline, Extent, Family, Matrix, Row, Trial
from assay.harness.models.capabilities.recorded import CAPABILITY
from assay.harness.report import kills as showing
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Verdict
from assay.harness.tests.support.toys import toy

LAWS = {
    case.claim.id: None
    for case in cases.collect(harness_main.rooms().claims)
    if case.claim.kind is Kind.LAW and not case.claim.about_engines
}
"""The numbers of all laws about models, in the order of their files."""

FEW = Profile("few", examples=8, shrink=0, brake=300.0)


def unmodified(family):
    """The family's model, loaded once."""
    return toy(KINDS[family])


@pytest.fixture(scope="module")
def every_case():
    return cases.collect(harness_main.rooms().claims)


def injectable(id):
    """Faults that a law must catch, those of this law first, each with a kind of model in which
    it can be injected.

    Each law begins with another kind, so that together they try all.
    """
    kinds = list(KINDS)
    first = list(LAWS).index(id) % len(kinds)
    named = [fault for fault in map(faults.named, faults.FAULTS) if id in fault.caught_by]
    for fault in sorted(named, key=lambda fault: fault.caught_by.index(id)):
        for kind in kinds[first:] + kinds[:first]:
            if not fault.lacks(unmodified(kind)):
                yield kind, fault


@pytest.mark.parametrize("id", LAWS)
def test_a_law_catches_a_fault_and_passes_without_it(every_case, id):
    mine = [case for case in every_case if case.claim.id == id]
    missed = []
    for kind, fault in injectable(id):
        with faults.injected(fault, unmodified(kind)) as damaged:
            results = ((case, kills.settle(case, damaged, kills.session(FEW))) for case in mine)
            caught = next((case for case, r in results if r.verdict is Verdict.REFUTED), None)
        if caught:
            sound = caught.settle(unmodified(kind), kills.session(FEW))
            assert sound.verdict is Verdict.UPHELD, sound.reason
            return
        missed.append(f"{fault.name} in {kind}")
    pytest.fail(f"{id} missed {missed}")


def test_every_fault_names_claims_that_there_are(every_case):
    ids = {case.claim.id for case in every_case} | {CAPABILITY}
    for fault in faults.FAULTS.values():
        assert set(fault.caught_by) <= ids, fault.name


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("positions-ignored", "position-ids"),
        ("mask-4d-ignored", "mask-4d"),
        ("cache-not-given", "cache"),
    ],
)
def test_a_fault_that_takes_a_capability_away_is_killed_by_its_name(name, gone):
    family = Trial([]).family("learned positions", unmodified("learned positions"), [named(name)])
    (row,) = family.rows
    assert (row.state, row.tried) == ("killed", 0)
    assert (CAPABILITY, gone) in row.killers


def test_a_lost_capability_alone_does_not_stand_for_the_claim_that_must_notice():
    fault = named("explicit-positions-off-by-one")
    family = Trial([]).family("learned positions", unmodified("learned positions"), [fault])
    assert family.rows[0].state == "killed by others"


# -- with claims of its own -----------------------------------------------------------------------


def toys() -> ModuleType:
    """One law that every damaged model of ours breaks, one that none does."""
    module = ModuleType("toys")

    @law("C1", "what is injected is noticed", source="here, for tests", control="as injected")
    def test_sees(subject, draw, check):
        draw(prompts(subject), "prompt")
        check.judge(float(subject.injected is not None), 0.5)
        check.judge_control(1.0, 0.5)

    @law("C9", "nothing is ever noticed", source="here, for tests", control="as injected")
    def test_is_blind(subject, draw, check):
        draw(prompts(subject), "prompt")
        check.judge(0.0, 0.5)
        check.judge_control(1.0, 0.5)

    module.test_sees, module.test_is_blind = test_sees, test_is_blind
    return module


@pytest.fixture
def rooms(tmp_path):
    families = {"learned positions": KINDS["learned positions"], "encoder": KINDS["encoder"]}
    return lambda: Rooms([toys()], tmp_path, families, lambda spec, options: toy(spec))


def matrix_of(rooms, *names, whole=True, extent=Extent.LAWS):
    tasks = [Task(rooms, family, names, extent) for family in rooms().families]
    with command.Working(1) as working:
        matrix = Matrix(tuple(working.families(tasks)), whole=whole)
        return working.idle_laws(matrix, tasks) if extent is Extent.LAWS else matrix


def test_a_fault_that_its_claim_notices_is_killed(rooms):
    matrix = matrix_of(rooms, "future-seen-by-one", whole=False)
    assert [row.state for row in matrix.rows] == ["killed", "does not apply"]
    assert matrix.rows[0].killers == (("C1", "what is injected is noticed"),)
    assert matrix.rows[1].lacks.startswith("causal: ")
    assert matrix.holds


def test_a_fault_that_its_claim_does_not_notice_survives(rooms):
    matrix = matrix_of(rooms, "embeddings-without-scale", whole=False)
    row = matrix.rows[0]
    assert row.state == "killed by others"
    assert matrix.survivors == matrix.rows
    assert not matrix.holds
    assert showing.cell(row) == "survived +1"
    alone = matrix_of(rooms, "embeddings-without-scale", whole=False, extent=Extent.NAMED)
    assert alone.rows[0].state == "survived"


def test_a_law_that_need_not_catch_a_fault_is_tried_until_it_catches_one(rooms):
    matrix = matrix_of(rooms, "embeddings-without-scale")
    kills_of = [row.killers for row in matrix.rows]
    assert kills_of == [(("C1", "what is injected is noticed"),), ()]  # once is enough
    assert matrix.idle == [("C9", "nothing is ever noticed")]


def test_idle_laws_are_shared_out_among_families_that_keep_them():
    one, two, three = ("C1", "a claim"), ("C2", "b"), ("C3", "c")
    both = Family("f", "m", (baseline(*one), baseline(*two), baseline(*three)), ())
    some = Family("g", "m", (baseline(*one), baseline(*two, verdict="refuted")), ())
    shares = kills.shared_out([one, two, three], [both, some], {})
    assert {law for laws in shares.values() for law in laws} == {one, two, three}
    assert two not in shares.get("g", [])
    again = kills.shared_out([one, two], [both, some], {one: {"f"}, two: {"f"}})
    assert again == {"g": [one]}


def baseline(id="C1", name="a claim", kind="law", verdict="upheld", expected=True) -> Baseline:
    return Baseline(id, name, kind, verdict, "why", expected)


def killed(family="f", fault="rows-alike") -> Row:
    return Row(family, fault, "", ("C1",), (("C1", "a claim"),))


def test_what_makes_a_matrix_fail():
    good = Matrix((Family("f", "tiny:f", (baseline(),), (killed(),)),))
    assert good.holds
    family = good.families[0]
    broken = replace(family, healthy=(baseline(verdict="refuted", expected=False),))
    assert not Matrix((broken,)).holds
    expected = replace(family, healthy=(baseline(), baseline("C2", "other", verdict="refuted")))
    assert Matrix((expected,)).holds
    undecided = baseline("D1", "finding", "finding", "inconclusive")
    loose = replace(family, healthy=(baseline(), undecided))
    assert Matrix((loose,)).loose == [("D1", "finding")]
    assert not Matrix((loose,)).holds
    right = replace(loose, healthy=(baseline("D1", "finding", "finding", "refuted"),))
    assert Matrix((loose, right)).holds
    nowhere = replace(family, rows=(killed(), Row("f", "rows-parallel", "lacks it", ("D1",))))
    assert Matrix((nowhere,)).unplanted == ["rows-parallel"]
    assert not Matrix((nowhere,)).holds
    assert Matrix((nowhere,), whole=False).holds


def test_a_claim_that_fails_outside_of_its_examples_has_noticed(every_case):
    class Exploding:
        claim = every_case[0].claim
        name = "explodes"

        def settle(self, *_):
            raise BadInput("cannot be loaded")

    result = kills.settle(Exploding(), unmodified("encoder"), kills.session(kills.MUST))
    assert result.verdict is Verdict.REFUTED
    assert "cannot be loaded" in result.reason


def test_the_command_writes_what_it_prints(rooms, tmp_path, capsys):
    report = tmp_path / "m.json"
    arguments = ["--fault", "future-seen-by-one", "--json", str(report)]
    assert command.main(arguments, rooms) == 0
    assert "1 of 1 injected faults killed" in " ".join(capsys.readouterr().out.split())
    document = json.loads(report.read_text())
    assert document["families"][0]["rows"][0]["state"] == "killed"
    assert document["holds"] is True


def test_faults_are_planted_in_the_dtype_that_is_asked_for(rooms):
    dtypes = []

    def load(spec, options):
        dtypes.append(options.dtype)
        return unmodified("encoder")

    inside = replace(rooms(), load=load)
    arguments = ["--fault", "future-seen-by-one", "--family", "bert", "--dtype", "bfloat16"]
    assert command.main(arguments, lambda: inside) == 0
    assert dtypes == ["bfloat16"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fault", "future"], "is not a fault; near: "),
        (["--family", "whales"], "no such family; there are learned positions"),
        (["--json", "."], "is a folder"),
        (["--extent", "x"], "--extent: invalid choice: 'x' (choose from "),
    ],
)
def test_the_command_refuses_what_is_not_there(rooms, arguments, said):
    with pytest.raises(BadInput, match=r"fault|family|folder|number|extent") as refused:
        command.main(arguments, rooms)
    assert said in str(refused.value)
    assert "<" not in str(refused.value), "the repr of an object"


def test_a_trial_leaves_out_laws_that_the_unmodified_model_breaks(rooms):
    module = toys()

    @law("C1", "nobody keeps this", source="here, for tests", control="none")
    def test_never(subject, draw, check):
        draw(prompts(subject), "prompt")
        check.judge(1.0, 0.5)

    module.test_sees = test_never
    trial = Trial(cases.collect([module]))
    fault = faults.named("future-seen-by-one")
    family = trial.family("learned positions", unmodified("learned positions"), [fault])
    assert [entry.id for entry in family.broken] == ["C1"]
    assert family.rows[0].state == "survived"
