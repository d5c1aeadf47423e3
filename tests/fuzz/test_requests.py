"""Fuzzing: what people send to a served model is answered or refused by the name of a field, in a short sentence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.serving.api.request_parsing import UNSUPPORTED, BadRequest, Message, parse
from slipway.trainer.base import parsing
from tests.fuzz.test_readers import FEW, MANY, VALUES, as_bytes, damaged

pytestmark = pytest.mark.pure

COMPLETION = {
    "model": "m", "prompt": ["a text"], "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["\n"],
    "stream": True, "stream_options": {"include_usage": True}, "echo": False, "logprobs": 2,
    **{name: harmless[-1] for name, harmless in UNSUPPORTED.items()},
}  # fmt: skip
CHAT = {
    "model": "m", "max_completion_tokens": 5, "logprobs": True, "top_logprobs": 3, "stop": "\n",
    "messages": [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "there"}]},
    ],
}  # fmt: skip
REQUESTS = st.tuples(damaged(COMPLETION) | VALUES, st.just(False)) | st.tuples(damaged(CHAT) | VALUES, st.just(True))
LONGEST = 300
"""Characters of a refusal."""


def answered(request: tuple[Any, bool]) -> None:
    document, chat = request
    try:
        parse(parsing.value(as_bytes(document)), chat)
    except BadRequest as refused:
        assert str(refused) and len(str(refused)) < LONGEST


def test_whatever_is_asked_is_understood_or_refused_in_a_short_sentence():
    FEW(given(REQUESTS)(answered))()


@pytest.mark.nightly
def test_whatever_is_asked_is_understood_or_refused_in_a_short_sentence_for_thousands():
    MANY(given(REQUESTS)(answered))()


def test_what_was_damaged_is_what_would_be_understood():
    assert parse(COMPLETION, chat=False).prompt == "a text"
    message = parse(CHAT, chat=True).prompt[1]
    assert isinstance(message, Message) and message.content == "hellothere"


FIELDS = ["n", "best_of", "stream", "seed", "temperature", "stream_options", "stop", "logprobs", "prompt"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_without_an_end_is_not_sent_back(field: str):
    wide: Any = "x" * 100
    for _ in range(5):
        wide = [{f"{'a key':>50}{number}": wide for number in range(8)}] * 8
    for value in ("x" * 100_000, [0.5] * 100_000, parsing.value("[" * 150 + "]" * 150), 10**4000, wide):
        if field in ("prompt", "stop") and isinstance(value, str):
            continue
        with pytest.raises(BadRequest) as refused:
            parse({"prompt": "a", field: value}, chat=False)
        assert len(str(refused.value)) < LONGEST


@pytest.mark.parametrize("prompt", [[["a"]], [[[1]]], [[[["a"]]]]])
def test_prompts_within_prompts_are_refused(prompt: Any):
    with pytest.raises(BadRequest, match=r"^prompt: expected a text, or the ids of tokens"):
        parse({"prompt": prompt}, chat=False)


@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": ["a"]}])
def test_a_part_of_a_message_without_a_text_is_refused(part: Any):
    with pytest.raises(BadRequest, match=r"^messages\[0\]\.content: expected a text"):
        parse({"messages": [{"role": "user", "content": [part]}]}, chat=True)
