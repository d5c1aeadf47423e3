"""Answers: the JSON documents of OpenAI's API, whole or as the events of a stream. Pure."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Logprobs:
    """The tokens of a completion, and how likely each was; None for the first of a prompt."""

    tokens: Sequence[str]
    chances: Sequence[float | None]
    likeliest: Sequence[Sequence[tuple[str, float]] | None]
    """The likeliest tokens at each place, the likeliest first, and how likely each was."""
    begin: int = 0
    """How many characters the tokens before these have, of an answer that is sent in pieces."""

    def document(self) -> dict[str, Any]:
        """As completions have it."""
        offsets, at = [], self.begin
        for token in self.tokens:
            offsets.append(at)
            at += len(token)
        return {
            "tokens": list(self.tokens),
            "token_logprobs": list(self.chances),
            "top_logprobs": [self._top(index) for index in range(len(self.tokens))],
            "text_offset": offsets,
        }

    def _top(self, index: int) -> dict[str, float] | None:
        """The token there and the likeliest ones; harnesses compare them to see whether it would have been drawn."""
        best, chance = self.likeliest[index], self.chances[index]
        if best is None or chance is None:
            return None
        return {self.tokens[index]: chance, **dict(reversed(best))}  # of two tokens with one text the likelier stays

    def of_chat(self, top: int) -> dict[str, Any]:
        """As chat completions have it, with the `top` likeliest tokens at each place."""
        parts = zip(self.tokens, self.chances, self.likeliest, strict=True)
        return {
            "content": [
                {**_of_chat(token, chance), "top_logprobs": [_of_chat(*likely) for likely in (best or ())[:top]]}
                for token, chance, best in parts
            ]
        }


@dataclass(frozen=True)
class AnswerHead:
    """What all documents of one answer share."""

    chat: bool
    model: str
    fingerprint: str
    top: int = 0
    """How many of the likeliest tokens a chat gets at each place."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def complete(self, text: str, finish: str, usage: Mapping[str, int], logprobs: Logprobs | None) -> dict[str, Any]:
        """The answer as one document."""
        if self.chat:
            choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        else:
            choice = {"text": text}
        choices = {"index": 0, **choice, "logprobs": self._logprobs(logprobs), "finish_reason": finish}
        return self._document("", [choices], usage=dict(usage))

    def event(self, text: str, finish: str | None, first: bool, logprobs: Logprobs | None = None) -> bytes:
        """The next piece of a stream; `logprobs` are of the tokens since the piece before."""
        if self.chat:
            delta = {**({"role": "assistant"} if first else {}), **({"content": text} if text or first else {})}
            choice: dict[str, Any] = {"delta": delta}
        else:
            choice = {"text": text}
        choices = {"index": 0, **choice, "logprobs": self._logprobs(logprobs), "finish_reason": finish}
        return _event(self._document(".chunk", [choices]))

    def _logprobs(self, logprobs: Logprobs | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        return logprobs.of_chat(self.top) if self.chat else logprobs.document()

    def usage_event(self, usage: Mapping[str, int]) -> bytes:
        """The last event of a stream that was asked to say how many tokens it was."""
        return _event(self._document(".chunk", [], usage=dict(usage)))

    def _document(self, suffix: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **more,
        }


def usage(prompt: int, new: int) -> dict[str, int]:
    """How many tokens a request was."""
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def problem(
    message: str, kind: str = "invalid_request_error", field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error, as clients of OpenAI read it; by some codes they know what to do."""
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def _of_chat(token: str, chance: float | None) -> dict[str, Any]:
    """One token of a chat. Its bytes are not known where it is a part of a character."""
    return {"token": token, "logprob": chance, "bytes": None if "\ufffd" in token else list(token.encode())}


def error_event(message: str) -> bytes:
    """An error in a stream that has begun."""
    return _event(problem(message, "server_error"))


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
