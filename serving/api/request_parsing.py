"""Request parsing: what a JSON document of OpenAI's API asks for, checked field by field. Pure.

A field that would change the answer and that we do not have is refused by name: an answer that ignores it would be
another one than was asked for. (https://platform.openai.com/docs/api-reference/completions, .../chat)
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.serving.engine.sampling_settings import Sampling

UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "frequency_penalty": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
    "logit_bias": (None, {}),
    "top_k": (None, -1, 0),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "repetition_penalty": (None, 1),
    "length_penalty": (None, 1),
    "use_beam_search": (None, False),
    "truncate_prompt_tokens": (None,),
    "prompt_logprobs": (None,),
    "allowed_token_ids": (None, []),
    "bad_words": (None, []),
    "ignore_eos": (None, False),
    "stop_token_ids": (None, []),
    "tools": (None, []),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
}
"""Fields that we do not have, and the values of each that change nothing; those of vLLM are among them."""
LIKELIEST = 20
"""The most likely tokens that an answer gives at each place, as at OpenAI."""
COMPLETION_TOKENS = 16
"""OpenAI's default for completions; where fewer fit, these."""
MAX_CHARACTERS = 80
"""Characters of a value that a refusal repeats: enough to know it again."""
ROLES = ("system", "developer", "user", "assistant")


class BadRequest(ValueError):
    """A request that cannot be answered as it is; the message names the field."""

    def __init__(self, field: str, message: str, code: str | None = None) -> None:
        """`code` is the word by which clients of OpenAI know what to do, where there is one."""
        super().__init__(f"{field}: {message}" if field else message)
        self.field, self.code = field, code


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True)
class Ask:
    """A request as the engine needs it."""

    chat: bool
    prompt: str | tuple[int, ...] | tuple[Message, ...]
    """A text, the ids of tokens, or the messages of a chat."""
    most: int | None
    """New tokens at most; None where the request does not say."""
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether the last event of a stream says how many tokens it was."""
    echo: bool
    logprobs: bool
    top: int = 0
    """How many of the likeliest tokens are given at each place, where `logprobs`."""


def parse(document: Any, chat: bool) -> Ask:
    """What a document asks for. Raises BadRequest."""
    if not isinstance(document, dict):
        raise BadRequest("", f"found {type(document).__name__}, expected a JSON object")
    for name, harmless in UNSUPPORTED.items():
        if not _is_harmless(document.get(name), harmless):
            raise BadRequest(
                name, f"found {format_value(document[name])}, which this server does not have; leave it out"
            )
    options = document.get("stream_options")
    if not isinstance(options, dict | None):
        raise BadRequest("stream_options", f"found {format_value(options)}, expected {{include_usage}}")
    newer, older = document.get("max_completion_tokens"), document.get("max_tokens")
    most = older if newer is None else newer
    least = 1 if chat else 0
    logprobs, top = _chat_logprobs(document) if chat else _logprobs(document.get("logprobs"))
    return Ask(
        chat,
        _messages(document.get("messages")) if chat else _prompt(document.get("prompt")),
        None if most is None else _integer("max_tokens" if newer is None else "max_completion_tokens", most, least),
        Sampling(
            _number("temperature", document.get("temperature"), 0.0, 2.0, 1.0),
            _number("top_p", document.get("top_p"), 0.0, 1.0, 1.0),
            None if document.get("seed") is None else _integer("seed", document["seed"], -(2**63)),
        ),
        _stops(document.get("stop")),
        _flag("stream", document),
        _flag("include_usage", options or {}, "stream_options."),
        _flag("echo", document) and not chat,
        logprobs,
        top,
    )


def new_tokens(ask: Ask, prompt: int, longest: int) -> int:
    """New tokens at most, after a prompt of so many tokens, of a model that reads `longest`.

    A request that does not say how many gets what fits, of completions COMPLETION_TOKENS at most. Raises BadRequest
    where not all that it asks for fits, or not one token.
    """
    room = longest - prompt
    fits = room if ask.chat else min(room, COMPLETION_TOKENS)
    most = fits if ask.most is None else ask.most
    if room < max(1, most):
        requested = "no room for an answer" if ask.most is None else f"max_tokens {most}"
        raise BadRequest(
            "messages" if ask.chat else "prompt",
            f"found {prompt} tokens and {requested}, expected {longest} together at most",
            "context_length_exceeded",
        )
    return most


def _logprobs(value: Any) -> tuple[bool, int]:
    """Of completions: how many of the likeliest tokens, beside the drawn one."""
    if value is None or value is False:
        return False, 0
    return True, 1 if value is True else _integer("logprobs", value, 0, LIKELIEST)


def _chat_logprobs(document: Mapping[str, Any]) -> tuple[bool, int]:
    requested, top = _flag("logprobs", document), document.get("top_logprobs")
    if top and not requested:
        raise BadRequest(
            "top_logprobs", f"found {format_value(top)} without logprobs, expected logprobs: true beside it"
        )
    return requested, 0 if top is None else _integer("top_logprobs", top, 0, LIKELIEST)


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages", "expected a list of {role, content}, not empty")
    return tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))


def _message(at: str, value: Any) -> Message:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        raise BadRequest(at, f"expected a role among {', '.join(ROLES)}")
    content = value.get("content")
    if isinstance(content, list) and all(_is_text(part) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise BadRequest(f"{at}.content", "expected a text")
    return Message(value["role"], _unicode(f"{at}.content", content))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _prompt(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        [value] = value
    if isinstance(value, str):
        return _unicode("prompt", value)
    if isinstance(value, list) and value and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    raise BadRequest("prompt", "expected a text, or the ids of tokens; one prompt a request")


def _stops(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > 16 or not all(isinstance(stop, str) and stop for stop in stops):
        raise BadRequest("stop", "expected a text, or a list of 16 at most, none empty")
    return tuple(_unicode("stop", stop) for stop in stops)


def _unicode(name: str, text: str) -> str:
    """JSON can write half of a character as \\ud800; no tokenizer reads it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(name, f"found {text[error.start]!r}, which is half of a character") from None
    return text


def _is_harmless(value: Any, harmless: tuple[Any, ...]) -> bool:
    """Whether a value is one of these; true and false are no numbers."""
    return any(value == default and isinstance(value, bool) == isinstance(default, bool) for default in harmless)


def _flag(name: str, document: Mapping[str, Any], below: str = "") -> bool:
    value = document.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{below}{name}", f"found {format_value(value)}, expected true or false")
    return bool(value)


def _integer(name: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        up_to = "on" if most >= 2**63 - 1 else f"to {most}"
        raise BadRequest(name, f"found {format_value(value)}, expected a whole number from {least} {up_to}")
    return value


def _number(name: str, value: Any, least: float, most: float, default: float) -> float:
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequest(name, f"found {format_value(value)}, expected a number from {least:g} to {most:g}")
    return float(value)


def format_value(value: Any) -> str:
    """What was found, in SHOWN characters at most, however large it is and whatever it has within it."""
    return short(reprlib.repr(value))


def short(text: str) -> str:
    """A text in SHOWN characters at most: its beginning and its end."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS // 2]}...{text[3 - MAX_CHARACTERS // 2 :]}"
