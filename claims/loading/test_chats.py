"""What a chat template makes of a chat (beyond the documents)."""

from __future__ import annotations

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from assay.fixtures import writing
from assay.harness.checking.bounds import Bound
from assay.harness.checking.findings import finding
from assay.harness.checking.laws import law
from assay.harness.checking.statistics import share
from assay.harness.operations import growing_chats, tokens


@law(
    "H3",
    "a chat has the ids of its text, and begins with one special token at most",
    needs=["chat-template"],
    source="beyond the documents",
    control="the ids with the first one twice",
)
@pytest.mark.parametrize("last", ["user", "assistant"])
def test_a_chat_has_the_ids_of_its_text(subject, last, draw, check):
    chat = draw(writing.chats(last), "chat")
    text, ids = tokens.rendered(subject, chat), tokens.of_chat(subject, chat)
    of_text = tokens.ids(subject, text)
    check.judge(tokens.unlike(ids, of_text), 0.0, tokens.where(text, ids, of_text))
    begins = subject.tokenizer.bos_token_id
    more = max(0, tokens.first_run(ids, begins) - 1)
    check.judge(more, 0.0, f"tokens {begins} after the first at the beginning")
    check.judge_control(tokens.unlike([*ids[:1], *ids], of_text), 0.0)
    # Some sound templates write no begin-of-sequence token: recorded, and not judged.
    check.details.setdefault("begin-of-sequence tokens", tokens.beginnings(subject, text, ids))


@law(
    "H3",
    "the prompt for an answer is appended to a chat",
    needs=["chat-template"],
    source="beyond the documents",
    control="a chat whose last message has one more letter",
)
def test_the_prompt_for_an_answer_is_appended_to_a_chat(subject, draw, check):
    chat = draw(writing.chats("user"), "chat")
    text = tokens.rendered(subject, chat)
    prompted = tokens.rendered(subject, chat, add_generation_prompt=True)
    lost = tokens.unprompted(subject, text, prompted)
    check.judge(lost, 0.0, f"letters of {text!r} lost")
    longer = tokens.rendered(subject, tokens.with_a_letter(chat))
    check.judge_control(tokens.unprompted(subject, longer, prompted), 0.0)


@law(
    "H3",
    "a message to continue is cut off after its text",
    needs=["continued-messages"],
    source="beyond the documents",
    control="a chat whose last message has one more letter",
)
def test_a_message_to_continue_is_cut_off_after_its_text(subject, draw, check):
    chat = draw(writing.chats("assistant"), "chat")
    text = tokens.rendered(subject, chat)
    open_ended = tokens.rendered(subject, chat, continue_final_message=True)
    lost = len(open_ended) - tokens.first_unlike(open_ended, text)
    check.judge(lost, 0.0, f"letters of {open_ended!r} that the chat does not have")
    said = chat[-1]["content"]
    check.judge(0.0 if open_ended.endswith(said) else 1.0, 0.0, f"{open_ended!r} ends otherwise")
    longer = tokens.rendered(subject, tokens.with_a_letter(chat), continue_final_message=True)
    check.judge_control(len(longer) - tokens.first_unlike(longer, text), 0.0)


@law(
    "H3",
    "special tokens in messages stay text where a chat is sanitised",
    needs=["sanitised-chats"],
    source="beyond the documents",
    control="the chat that is not sanitised",
)
def test_special_tokens_in_messages_stay_text(subject, draw, check):
    plain = draw(writing.chats("user"), "chat")
    token = draw(st.sampled_from(writing.special_texts(subject)), "special token")
    assume(tokens.is_text_when_split(subject, token))
    chat = [{**each, "content": f"{each['content']} {token} so"} for each in plain]
    allowed = tokens.specials(subject, tokens.of_chat(subject, plain))
    safe = tokens.specials(subject, tokens.of_chat(subject, chat, sanitize_control_tokens=True))
    check.judge(tokens.unlike(safe, allowed), 0.0, f"special tokens: {safe} and {allowed}")
    check.judge_control(
        tokens.unlike(tokens.specials(subject, tokens.of_chat(subject, chat)), allowed), 0.0
    )


@finding(
    "H5",
    "a chat that grows only appends",
    needs=["chat-template"],
    source="beyond the documents; trl#5109, verl#6854",
    bound=Bound(share, at_least=0.95),
    control="a template that repeats the first message at the end",
    draws=128,
)
@pytest.mark.parametrize("prompted", [False, True], ids=["messages", "prompts for answers"])
def test_a_chat_that_grows_only_appends(subject, prompted, draws, sample):
    for chat in writing.growing_chats(draws):
        steps = [*growing_chats.growths(subject, chat, prompted)]
        changed = [each.change for each in steps if not each.appends]
        sample.why = sample.why or next(iter(changed), "")
        sample.add(effect=not changed, control=all(each.control_appends for each in steps))
