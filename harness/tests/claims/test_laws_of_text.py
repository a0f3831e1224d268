"""Laws about tokenizers: sound ones of every kind keep them, and known mistakes break them."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
import transformers
from packaging.version import Version
from transformers import PreTrainedTokenizer

from assay.claims.loading import test_chats, test_tokens
from assay.fixtures import chat
from assay.fixtures.subjects import load
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.capabilities import probe
from assay.harness.models.loading.runs import Options
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import text_models
from assay.harness.tests.support.folders import byte_pairs, tiny
from assay.harness.tests.support.toys import budget, fresh, toy, verdict

GROWS = test_chats.test_a_chat_that_grows_only_appends
FILE = test_tokens.test_ids_are_those_of_the_tokenizers_own_file
BATCH = test_tokens.test_a_text_in_a_batch_has_the_ids_that_it_has_alone
BACK = test_tokens.test_the_tokens_of_a_normalised_text_give_it_back
OFFSETS = test_tokens.test_the_offsets_of_a_token_point_at_its_text
SAVED = test_tokens.test_a_tokenizer_is_saved_and_loaded_with_all_that_it_holds
STORED = test_tokens.test_a_saved_file_gives_a_text_the_ids_of_the_tokenizer
EOS = test_tokens.test_add_eos_token_appends_the_token
AFTER = test_tokens.test_a_fixed_text_has_the_same_ids_after_calls

READ = {"special": "special tokens read"}
CASES = {
    "file": (FILE, READ),
    "file, special tokens as text": (FILE, {"special": "special tokens as text"}),
    "batch": (BATCH, {"cut": "whole"}),
    "truncated": (BATCH, {"cut": "truncated"}),
    "back": (BACK, {}),
    "offsets": (OFFSETS, {}),
    "saved": (SAVED, {}),
    "stored": (STORED, {}),
    "after": (AFTER, {}),
}
CHATS = {
    "chat": (test_chats.test_a_chat_has_the_ids_of_its_text, {"last": "user"}),
    "prompt": (test_chats.test_the_prompt_for_an_answer_is_appended_to_a_chat, {}),
    "continued": (test_chats.test_a_message_to_continue_is_cut_off_after_its_text, {}),
    "sanitised": (test_chats.test_special_tokens_in_messages_stay_text, {}),
}


@pytest.mark.parametrize("case", ["file", "saved", "stored"])
@pytest.mark.parametrize(
    "settings",
    [{"padding_side": "left", "truncation_side": "left"}, {"add_eos_token": True}],
    ids=str,
)
def test_what_a_user_sets_on_a_tokenizer_is_not_accused(tmp_path, settings, case):
    subject = load(str(text_models.write("metaspace", tmp_path)), Options())
    for name, value in settings.items():
        setattr(subject.tokenizer, name, value)
    claim, arguments = CASES[case]
    result = verdict(claim, subject, budget(4), arguments=arguments)
    assert result.verdict is not Verdict.REFUTED, result.reason


@pytest.mark.parametrize("case", ["file", "stored"])
def test_a_tokenizer_of_bytes_without_merges_leaves_the_control_nothing(tmp_path, case):
    tiny("llama").save_pretrained(tmp_path)
    byte_pairs(size=257).save_pretrained(tmp_path)
    subject = load(str(tmp_path), Options())
    claim, arguments = CASES[case]
    result = verdict(claim, subject, budget(4), arguments=arguments)
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "merges nothing" in result.reason


def test_a_setter_that_does_nothing_is_refuted(tmp_path):
    subject = load(str(text_models.write("byte-level", tmp_path)), Options())
    assert verdict(EOS, subject, budget(4)).verdict is Verdict.UPHELD
    subject.tokenizer.update_post_processor = lambda: None
    result = verdict(EOS, subject, budget(4))
    assert result.verdict is Verdict.REFUTED, result.reason


class InPython(PreTrainedTokenizer):
    """A tokenizer in Python: a token for each byte."""

    vocab_files_names: ClassVar[dict[str, str]] = {}

    @property
    def vocab_size(self):
        return 256

    def get_vocab(self):
        return {chr(i): i for i in range(256)} | self.added_tokens_encoder

    def _tokenize(self, text, **options):
        return [chr(byte) for byte in text.encode(errors="replace")]

    def _convert_token_to_id(self, token):
        return ord(token)

    def _convert_id_to_token(self, index):
        return chr(index)

    def convert_tokens_to_string(self, tokens):
        parts = [t.encode() if len(t) > 1 else bytes([ord(t)]) for t in tokens]
        return b"".join(parts).decode(errors="replace")

    def save_vocabulary(self, save_directory, filename_prefix=None):
        return ()


def test_a_tokenizer_in_python_is_saved_and_loaded():
    tokenizer = InPython()
    tokenizer.add_tokens(["<think>"])
    subject = fresh("llama")
    subject.tokenizer = tokenizer
    result = verdict(SAVED, subject, budget(4))
    assert result.verdict is Verdict.UPHELD, result.reason


@pytest.mark.parametrize("case", ["file", "back", "offsets", "chat"])
def test_a_model_without_a_tokenizer_lacks_it_by_name(case):
    claim, arguments = (CASES | CHATS)[case]
    result = verdict(claim, toy("llama"), budget(1), arguments=arguments)
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "no tokenizer came with the model" in result.reason


ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}"
    "{{ m['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
PHI = ZEPHYR + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
TRIMMED = ZEPHYR.replace("m['content']", "m['content'] | trim")


@pytest.mark.nightly
@pytest.mark.parametrize("template", [ZEPHYR, MISTRAL, TRIMMED, PHI])
@pytest.mark.parametrize("name", ["metaspace", "byte-level"])
@pytest.mark.parametrize("case", CHATS)
def test_no_sound_template_is_accused(tmp_path, name, template, case):
    folder = text_models.write(name, tmp_path, chat_template=template)
    claim, arguments = CHATS[case]
    result = verdict(claim, load(str(folder), Options()), budget(6), arguments=arguments)
    assert result.verdict is not Verdict.REFUTED, result.reason


DEFECTS = {
    "LlamaTokenizer, legacy": ["saved"],
    "CodeLlamaTokenizer": ["after"],
}
"""Laws that a class of the library breaks, by docs/defects."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with the tokenizer of that name, loaded from its folder."""
    made = {}

    def of(name):
        if name not in made:
            changes = {"legacy": True} if "legacy" in name else {}
            folder = text_models.write(name, tmp_path_factory.mktemp("text"), **changes)
            made[name] = load(str(folder), Options())
        return made[name]

    return of


PAIRS = [
    (name, case)
    for name in text_models.EVERY
    for case in CASES
    # Refuted, by the same defect, where a drawn text has a token to fill in.
    if not (name == "CodeLlamaTokenizer" and case.partition(",")[0] in ("file", "saved", "stored"))
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_no_sound_tokenizer_is_accused(model, name, case):
    claim, arguments = CASES[case]
    known = case in DEFECTS.get(name, ())
    result = verdict(claim, model(name), budget(24 if known else 4), arguments=arguments)
    sound = (Verdict.UPHELD, Verdict.NOT_APPLICABLE)
    assert result.verdict in ((Verdict.REFUTED,) if known else sound), result.reason


@pytest.fixture
def refuted(tmp_path):
    """Whether a law is refuted on a model with that tokenizer, whose configuration is changed."""

    def on(case, name, **changes):
        folder = text_models.write(name, tmp_path, **changes)
        claim, arguments = CASES[case]
        result = verdict(claim, load(str(folder), Options()), budget(24), arguments=arguments)
        return result.verdict is Verdict.REFUTED

    return on


FIVE = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5"), reason="classes read tokenizer.json before 5"
)


ENDED = "{{ eos_token }}{% endfor %}"
ANSWER = "{{ '<|assistant|>' + message['content'] }}"
SYSTEM = "{% if messages[0]['role'] != 'system' %}You are good.{% endif %}"
TEMPLATES = {
    "appends": (chat.TEMPLATE, True, ""),
    "begins with a system message of its own": (SYSTEM + chat.TEMPLATE, True, ""),
    "cuts thinking of earlier answers": (
        chat.TEMPLATE.replace(
            f"{{% else %}}{ANSWER}",
            f"{{% elif loop.last %}}{ANSWER}{{% else %}}"
            "{{ '<|assistant|>' + message['content'].split('</think>')[-1].lstrip() }}",
        ),
        *(False, r"thinking is cut \(<think>\): in message \d of \d \(assistant\), .<think>"),
    ),
    "ends the whole chat alone": (
        chat.TEMPLATE.replace(ENDED, "{% endfor %}{% if not add_generation_prompt %}").replace(
            "{% if add_generation_prompt %}", "{{ eos_token }}{% else %}"
        ),
        *(False, r"in message \d of \d \(\w+\), '<\|end\|>' becomes"),
    ),
    "tells the number of messages first": (
        "{{ messages | length }} messages" + chat.TEMPLATE,
        *(False, r"in message 1 of 1 \(\w+\), '. messages"),
    ),
}


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_changes_what_was_there_is_named(tmp_path, name, prompted):
    template, appends, why = TEMPLATES[name]
    model, tokenizer = chat.load()
    tokenizer.chat_template = template
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path)
    subject = load(str(tmp_path), Options())
    result = verdict(GROWS, subject, PROFILES["glance"], arguments={"prompted": prompted})
    assert result.verdict is (Verdict.UPHELD if appends else Verdict.REFUTED), result.reason
    assert re.match(why, result.reason), result.reason


@FIVE
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("byte-level, words of its own", "GPT2Tokenizer"),  # transformers#45812, #45920
        ("word pieces", "RobertaTokenizer"),  # #45701
        ("byte-level, words of its own", "RobertaTokenizer"),
        ("metaspace by a normaliser", "LlamaTokenizer"),  # #47700
    ],
)
def test_a_class_that_is_not_the_files_is_refuted(refuted, name, kind):
    assert refuted("file", name, tokenizer_class=kind)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("byte-level", {"add_prefix_space": True}, "add_prefix_space=True replaces"),
        ("BertTokenizer", {"do_lower_case": False}, "do_lower_case=False replaces"),
    ],
)
def test_an_option_that_replaces_a_part_of_the_file_is_no_mistake(tmp_path, name, options, says):
    subject = load(str(text_models.write(name, tmp_path, **options)), Options())
    assert says in probe(subject).why_missing("tokenizer-file")


LOSSLESS = {
    *("byte-level", "byte-level, words of its own", "metaspace", "metaspace by a normaliser"),
    *("GPT2Tokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer"),
    *("LlamaTokenizer", "LlamaTokenizer, legacy", "CodeLlamaTokenizer", "GemmaTokenizer"),
}


def test_capabilities_of_tokenizers(model):
    assert {n for n in text_models.EVERY if "lossless-tokens" in probe(model(n))} == LOSSLESS
    assert all("tokenizer-file" in probe(model(name)) for name in text_models.EVERY)
