"""Requests of OpenAI's API: what is understood, and what is refused by name."""

from typing import Any

import pytest

from slipway.serving.api.request_parsing import Ask, BadRequest, Message, new_tokens, parse
from slipway.serving.engine.sampling_settings import Sampling

pytestmark = pytest.mark.pure


def test_a_completion_has_openais_defaults():
    expected = Ask(False, "a", None, Sampling(1.0, 1.0, None), (), False, False, False, False)
    assert parse({"prompt": "a"}, chat=False) == expected


def test_a_chat_answers_as_long_as_fits_unless_it_is_told_how_long():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}]
    request = parse({"messages": messages}, chat=True)
    assert (request.prompt, request.most) == ((Message("system", "s"), Message("user", "u")), None)
    assert parse({"messages": messages, "max_completion_tokens": 7}, chat=True).most == 7
    assert parse({"messages": messages, "max_completion_tokens": None, "max_tokens": 5}, chat=True).most == 5


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "u"}]}


@pytest.mark.parametrize(("prompt", "expected"), [(100, 16), (112, 16), (113, 15), (127, 1)])
def test_a_completion_that_does_not_say_how_long_gets_16_tokens_or_what_fits(prompt: int, expected: int):
    assert new_tokens(parse({"prompt": "a"}, chat=False), prompt, longest=128) == expected
    assert new_tokens(parse(CHAT, chat=True), prompt, longest=128) == 128 - prompt


@pytest.mark.parametrize(("prompt", "fields"), [(113, {"max_tokens": 16}), (128, {"max_tokens": 0}), (128, {})])
def test_a_completion_that_asks_for_more_than_fits_is_refused(prompt: int, fields: dict[str, int]):
    with pytest.raises(BadRequest, match=f"^prompt: found {prompt} tokens and .*, expected 128 together") as refused:
        new_tokens(parse({"prompt": "a", **fields}, chat=False), prompt, longest=128)
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_a_prompt_may_be_the_ids_of_tokens(prompt: Any):
    assert parse({"prompt": prompt}, chat=False).prompt == (1, 2)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_as_many_likeliest_tokens_are_reported_as_are_asked_for(count: int):
    request = parse({"prompt": "a", "logprobs": count, "echo": True, "max_tokens": 0}, chat=False)
    assert (request.logprobs, request.top) == (True, count)
    chat = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": count}
    assert (parse(chat, chat=True).logprobs, parse(chat, chat=True).top) == (True, count)


def test_a_chat_that_asks_for_likeliest_tokens_without_log_probabilities_is_reported():
    with pytest.raises(BadRequest, match=r"^top_logprobs: found 2 without logprobs"):
        parse({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, chat=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", ["a", "b"]),
        ("prompt", [-1]),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("temperature", 2.5),
        ("top_p", "much"),
        ("seed", 0.5),
        ("stop", [""]),
        ("stream", "yes"),
        ("stream_options", "usage"),
        ("prompt", "half of a character: \ud800"),
        ("prompt", [True]),
        ("stop", ["\udfff"]),
        ("n", 2),
        ("logprobs", 21),
        ("logprobs", "yes"),
        ("top_k", 5),
        ("repetition_penalty", 1.1),
        ("stream", 1),
        ("presence_penalty", 0.5),
        ("logit_bias", {"3": 1}),
    ],
)
def test_what_cannot_be_answered_as_asked_is_refused_by_name(field: str, value: Any):
    with pytest.raises(BadRequest) as refused:
        parse({"prompt": "a", field: value}, chat=False)
    assert refused.value.field == field and str(refused.value).startswith(f"{field}: ")


NAN, INFINITE = float("nan"), float("inf")
EDGES: dict[str, tuple[list[Any], list[Any]]] = {
    "temperature": (
        [0, 0.0, -0.0, 5e-324, 1, 2, None],
        [-5e-324, -1, 2.0000001, NAN, INFINITE, 10**400, True, "1", []],
    ),
    "top_p": ([0, -0.0, 1e-300, 1, None], [-1e-300, 1.0000001, NAN, INFINITE, -INFINITE, 10**400, False, "0"]),
    "max_tokens": ([0, 1, 2**63 - 1, None], [-1, 1.0, NAN, 2**63, True, "1"]),
    "seed": ([0, -1, 2**63 - 1, -(2**63), None], [2**63, -(2**63) - 1, 1.5, NAN, True, "1"]),
    "logprobs": ([0, 20, None, True, False], [-1, 21, 1.0, NAN, 10**400, "1"]),
    "top_k": ([0, -1, None], [1, 2, -2, NAN, False, True, 10**400]),
    "n": ([1, None], [0, 2, -1, NAN, True, 10**400]),
    "best_of": ([1, None], [0, 2, True]),
    "min_p": ([0, 0.0, None], [0.1, NAN, False]),
    "min_tokens": ([0, None], [1, False]),
    "frequency_penalty": ([0, -0.0, None], [0.1, -2, NAN, INFINITE, False]),
    "presence_penalty": ([0, -0.0, None], [0.1, -2, NAN, INFINITE, False]),
    "repetition_penalty": ([1, 1.0, None], [0, 1.1, NAN, True]),
    "length_penalty": ([1, None], [0, 2, NAN]),
    "truncate_prompt_tokens": ([None], [0, 1, -1]),
    "logit_bias": ([None, {}], [{"1": 100}, [], 0]),
    "stop": ([None, [], "a", ["a"] * 16], ["", [""], ["a"] * 17, [1], 1, {}]),
}
"""Of each field, values that are answered, and values that are refused."""


@pytest.mark.parametrize("field", EDGES)
def test_each_field_is_answered_or_refused_by_its_name_at_its_edges(field: str):
    answered, refused = EDGES[field]
    for value in answered:
        parse({"prompt": "a", field: value}, chat=False)
    for value in refused:
        with pytest.raises(BadRequest) as raised:
            parse({"prompt": "a", field: value}, chat=False)
        assert raised.value.field == field, value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"stream_options": {"include_usage": "no"}}, "stream_options.include_usage"),
    ],
)
def test_a_field_of_a_chat_is_refused_by_its_own_name(fields: dict[str, Any], field: str):
    with pytest.raises(BadRequest) as refused:
        parse({**CHAT, **fields}, chat=True)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "messages", [None, [], ["hello"], [{"role": "robot", "content": "a"}], [{"role": "user", "content": 3}]]
)
def test_messages_that_are_none_are_refused(messages: Any):
    with pytest.raises(BadRequest, match="messages"):
        parse({"messages": messages}, chat=True)
