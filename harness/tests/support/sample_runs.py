"""A run with everything filled in, for tests of what is shown of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, margin
from assay.harness.tests.support.evidence_files import a_run

LARGE = "reference:large"
LAWS = (
    ("A5", "permuting tokens, positions and mask alike restores the output", 3.1e-6, 2.4e-5),
    ("B1", "an unmasked attention head is permutation-equivariant", 4.2e-7, 1.1e-5),
    ("C1", "a prefix's states do not change when tokens follow it", 0.0314, 1.9e-5),
    ("C2", "cached decoding equals recomputation", 5.8e-6, 2.3e-5),
    ("C3", "cached entries are never rewritten", 0.0, 1e-12),
    ("C10", "save and load change nothing", 0.0, 1e-12),
    ("C11", "caching makes a step cost O(n) instead of O(n²)", 0.021, 0.05),
    ("D2", "nearest-row decoding recovers every token", 0.0, 0.5),
    ("D3", "positions can be added and subtracted", 1.3e-7, 4.1e-6),
    ("F1", "the gradient of the sum is the sum of the gradients", 4.4e-7, 1.4e-5),
)
NO_DISTANCE = "needs rotary, alibi or no-positions: positions are a learned table"
COUNTEREXAMPLE = Counterexample(
    {
        "prompt": "'The'(464) ' value'(1988) ' returned'(4504)",
        "appended": "' by'(416)",
        "cut": "2",
    },
    observed=0.0314,
    allowed=1.9e-5,
    where="at position 2, after block 1",
    replay="pytest claims/cache/test_causality.py::test_a_prefix_does_not_see_what_follows"
    " --model reference:large --dtype float32 --replay C1:AXicY2BgYGBkYGBgYmBgYGZgAAAAQgAL",
)


def sample_run(*subjects: str) -> RunRecord:
    """A run on ``subjects`` (the large reference by default) with everything filled in."""
    facts = {
        "digest": "9f2c41d07be8a3350b6f8a1fd2c4e97751a0cc3e6d84b9f0137e2a5bd9c60e48",
        "model_type": "gpt2",
        "parameters": 6_320_000,
        "vocabulary": 4096,
        "context": 256,
        "hidden": 256,
        "layers": 6,
        "attention": "sdpa",
        "dtype": "float32",
        "capabilities": ["causal", "learned-positions", "kv-cache", "lm-head", "tokenizer"],
        "missing": {"rotary": "positions are a learned table", "alibi": "no bias by distance"},
    }
    return a_run(
        "5d0c52f1b6a94d0f9f6c3c1f7f0c7a11",
        "2025-11-20T09:41:07+00:00",
        finished="2025-11-20T09:42:31+00:00",
        exit=1,
        attention="sdpa",
        threads=2,
        platform="Linux-6.1-x86_64",
        subjects={subject: dict(facts) for subject in subjects or (LARGE,)},
    )


def sample(subject: str = LARGE, broken: bool = True) -> list[Result]:
    """Laws, a finding that is upheld and one undecided, two claims that do not apply.

    C1 is refuted where ``broken``.
    """
    results = []
    for i, (number, says, observed, bound) in enumerate(LAWS):
        result = Result(
            number, says, Kind.LAW, subject, Verdict.UPHELD, observed, bound,
            margin(observed, bound), examples=120 + 8 * i, seconds=0.4 + 0.37 * i,
        )  # fmt: skip
        results.append(_broken(result) if broken and number == "C1" else result)
    finding = Result(
        "A1", "permuting positions barely changes the output", Kind.FINDING, subject,
        Verdict.UPHELD, 0.071, 0.25, margin(0.071, 0.25), (0.058, 0.089), 400, 6.2,
    )  # fmt: skip
    undecided = replace(
        finding, id="C7", name="re-evaluating the past without the mask differs",
        verdict=Verdict.INCONCLUSIVE, observed=0.0093, bound=0.01, margin=0.03,
        interval=(0.0071, 0.0124), reason="the interval holds the bound after 2000 samples",
    )  # fmt: skip
    absent = [
        Result(number, says, Kind.LAW, subject, Verdict.NOT_APPLICABLE, reason=NO_DISTANCE)
        for number, says in (
            ("A8", "only relative distance matters"),
            ("E21", "without absolute positions the last state is not injective"),
        )
    ]
    return [*results, finding, undecided, *absent]


def _broken(result: Result) -> Result:
    return replace(
        result, verdict=Verdict.REFUTED, observed=0.0314, margin=margin(0.0314, 1.9e-5),
        reason="the state at position 2 moved when one token was appended",
        counterexample=COUNTEREXAMPLE,
    )  # fmt: skip


def one(**changes: Any) -> Result:
    """The refuted law of the sample, with changes."""
    return replace(next(r for r in sample() if r.id == "C1"), **changes)
