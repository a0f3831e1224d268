"""A capability that a model lost is wrong unless its file allows the lack."""

from __future__ import annotations

import msgspec
import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.expectation_files import load, record
from assay.harness.results.expectations import Lacks
from assay.harness.results.records import Recorded


def a_lack(tmp_path, text, **settings):
    """What is wrong with a gpt2 that lacks `cache`, by a file of expectations."""
    (tmp_path / "gpt2.toml").write_text(text)
    recorded = {"type": "causal:gpt2", "version": "5.23", "lacks": {"cache": "it gives none"}}
    recorded |= settings.pop("recorded", {})
    options = {"subject": "tiny:gpt2", "dtype": "float32"} | settings
    return Lacks(
        load(tmp_path), recorded=msgspec.convert(recorded, Recorded), **options
    ).unexpected


LACK = 'model = "tiny:gpt2"\n\n[[capability]]\nname = "cache"\nreason = "a defect"\n'
LINE = "lacks `cache`, which causal:gpt2 has in transformers 5.23: it gives none"


def test_a_lost_capability_is_wrong_unless_the_model_s_file_allows_it(tmp_path):
    assert a_lack(tmp_path, 'model = "tiny:gpt2"\n') == [f"tiny:gpt2 {LINE}"]
    assert a_lack(tmp_path, LACK) == []
    assert a_lack(tmp_path, LACK, subject="tiny:gpt2:7") == []
    assert a_lack(tmp_path, LACK, dtype="bfloat16") == []
    assert a_lack(tmp_path, LACK, subject="tiny:llama") == [f"tiny:llama {LINE}"]
    injected = "tiny:gpt2+future-seen-by-one"
    assert a_lack(tmp_path, LACK, subject=injected) == [f"{injected} {LINE}"]


def test_a_lack_that_is_allowed_must_be_there_in_the_model_and_dtype_of_the_file(tmp_path):
    (message,) = a_lack(tmp_path, LACK, recorded={"lacks": {}})
    assert message.startswith("tiny:gpt2 has `cache`, and ")
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}}, dtype="bfloat16") == []
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}}, subject="tiny:gpt2:7") == []
    assert a_lack(tmp_path, LACK, recorded={"lacks": {}, "type": None}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[capability]]\nname = "cache"', "missing required field `reason`"),
        ('[[capability]]\nname = "cache"\nreason = ""', "length >= 1"),
    ],
)
def test_an_entry_of_a_capability_is_read_strictly(tmp_path, text, said):
    with pytest.raises(BadInput, match=said):
        a_lack(tmp_path, f'model = "tiny:gpt2"\n{text}\n')


def test_recording_keeps_what_a_model_may_lack(tmp_path):
    (tmp_path / "gpt2.toml").write_text(LACK)
    record(tmp_path, "tiny:gpt2", [])
    assert load(tmp_path)["tiny:gpt2"].lacks == {"cache": "a defect"}
