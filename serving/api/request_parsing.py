"""Parses and checks requests in OpenAI's API, field by field. Pure functions.

A field that would change the answer but is not supported is refused by name, because an answer that ignores it would
not be the requested one. (https://platform.openai.com/docs/api-reference/completions, .../chat)
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
"""Unsupported fields, including vLLM's, and the values of each that have no effect on the answer."""
LIKELIEST = 20
"""The largest number of likeliest tokens at each position, as at OpenAI."""
COMPLETION_TOKENS = 16
"""New tokens of a completion by default, as at OpenAI, or fewer if the model has less room."""
MAX_CHARACTERS = 80
"""The most characters of a value that an error message repeats, enough to recognise it."""
ROLES = ("system", "developer", "user", "assistant")


class BadRequest(ValueError):
    """A request that cannot be answered; the message names the field."""

    def __init__(self, field: str, message: str, code: str | None = None) -> None:
        """`code` is the error code to which OpenAI's clients react, if there is one."""
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.code = code


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True)
class Ask:
    """A parsed request, with all that the engine needs."""

    chat: bool
    prompt: str | tuple[int, ...] | tuple[Message, ...]
    """A text, token ids, or the messages of a chat."""
    most: int | None
    """The most new tokens; None if the request does not say."""
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether the last event of a stream states the numbers of tokens."""
    echo: bool
    logprobs: bool
    top: int = 0
    """With `logprobs`, the number of likeliest tokens at each position."""


def parse(document: Any, chat: bool) -> Ask:
    """Parse a request's JSON document. Raises BadRequest."""
    if not isinstance(document, dict):
        raise BadRequest("", f"found {type(document).__name__}, expected a JSON object")
    for name, harmless in UNSUPPORTED.items():
        if not _is_harmless(document.get(name), harmless):
            raise BadRequest(
                name, f"found {format_value(document[name])}, which this server does not support; leave it out"
            )
    options = document.get("stream_options")
    if not isinstance(options, dict | None):
        raise BadRequest("stream_options", f"found {format_value(options)}, expected {{include_usage}}")
    prompt: str | tuple[int, ...] | tuple[Message, ...]
    if chat:
        prompt = _messages(document.get("messages"))
        logprobs, top = _chat_logprobs(document)
    else:
        prompt = _prompt(document.get("prompt"))
        logprobs, top = _logprobs(document.get("logprobs"))
    most = None
    for name in ("max_completion_tokens", "max_tokens"):  # the newer name of the field comes first
        if document.get(name) is not None and most is None:
            most = _integer(name, document[name], 1 if chat else 0)
    return Ask(
        chat,
        prompt,
        most,
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
    """The most new tokens after a prompt of `prompt` tokens, for a model that reads `longest` tokens.

    Without a number in the request, a chat gets all tokens that fit, a completion at most COMPLETION_TOKENS. Raises
    BadRequest if the requested number does not fit, or not even one token.
    """
    room = longest - prompt
    if ask.most is not None:
        most = ask.most
        requested = f"max_tokens {most}"
    else:
        most = room if ask.chat else min(room, COMPLETION_TOKENS)
        requested = "no room for an answer"
    if room < max(1, most):
        raise BadRequest(
            "messages" if ask.chat else "prompt",
            f"found {prompt} tokens and {requested}, expected {longest} together at most",
            "context_length_exceeded",
        )
    return most


def _logprobs(value: Any) -> tuple[bool, int]:
    """For completions: whether log-probabilities are requested, and of how many likeliest tokens."""
    if value is None or value is False:
        return False, 0
    if value is True:
        return True, 1
    return True, _integer("logprobs", value, 0, LIKELIEST)


def _chat_logprobs(document: Mapping[str, Any]) -> tuple[bool, int]:
    requested = _flag("logprobs", document)
    top = document.get("top_logprobs")
    if top and not requested:
        raise BadRequest(
            "top_logprobs", f"found {format_value(top)} without logprobs, expected logprobs: true beside it"
        )
    if top is None:
        return requested, 0
    return requested, _integer("top_logprobs", top, 0, LIKELIEST)


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
    stops = value
    if value is None:
        stops = []
    elif isinstance(value, str):
        stops = [value]
    if not isinstance(stops, list) or len(stops) > 16 or not all(isinstance(stop, str) and stop for stop in stops):
        raise BadRequest("stop", "expected a text, or a list of 16 at most, none empty")
    return tuple(_unicode("stop", stop) for stop in stops)


def _unicode(name: str, text: str) -> str:
    """Refuse a lone surrogate: JSON can write one as \\ud800, but no tokenizer can read it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(name, f"found {text[error.start]!r}, which is half of a character") from None
    return text


def _is_harmless(value: Any, harmless: tuple[Any, ...]) -> bool:
    """Whether a value is one of these; true and false do not count as numbers."""
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
    """The value as text of at most MAX_CHARACTERS characters, however large or deeply nested it is."""
    return short(reprlib.repr(value))


def short(text: str) -> str:
    """The beginning and the end of a text, together at most MAX_CHARACTERS characters."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS // 2]}...{text[3 - MAX_CHARACTERS // 2 :]}"
