"""Answers as JSON documents of OpenAI's API, whole or as the events of a stream. Pure functions."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Logprobs:
    """The tokens of a completion and their log-probabilities, which are None for the first token of a prompt."""

    tokens: Sequence[str]
    chances: Sequence[float | None]
    likeliest: Sequence[Sequence[tuple[str, float]] | None]
    """The likeliest tokens at each position with their log-probabilities, in falling order."""
    begin: int = 0
    """In a stream, the number of characters of the tokens before these."""

    def document(self) -> dict[str, Any]:
        """The form for completions."""
        offsets = []
        at = self.begin
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
        """The token at a position and the likeliest ones: evaluation harnesses compare them to see whether greedy
        decoding would have chosen the token."""
        best = self.likeliest[index]
        chance = self.chances[index]
        if best is None or chance is None:
            return None
        return {self.tokens[index]: chance, **dict(reversed(best))}  # of tokens with the same text, keep the likeliest

    def of_chat(self, top: int) -> dict[str, Any]:
        """The form for chat completions, with the `top` likeliest tokens at each position."""
        parts = zip(self.tokens, self.chances, self.likeliest, strict=True)
        return {
            "content": [
                {**_of_chat(token, chance), "top_logprobs": [_of_chat(*likely) for likely in (best or ())[:top]]}
                for token, chance, best in parts
            ]
        }


@dataclass(frozen=True)
class AnswerHead:
    """The fields that all documents of one answer share."""

    chat: bool
    model: str
    fingerprint: str
    top: int = 0
    """The number of likeliest tokens at each position in a chat's log-probabilities."""
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
        """The next piece of a stream; `logprobs` are those of the tokens since the previous piece."""
        if self.chat:
            delta = {}
            if first:
                delta["role"] = "assistant"
            if text or first:
                delta["content"] = text
            choice: dict[str, Any] = {"delta": delta}
        else:
            choice = {"text": text}
        choices = {"index": 0, **choice, "logprobs": self._logprobs(logprobs), "finish_reason": finish}
        return _event(self._document(".chunk", [choices]))

    def _logprobs(self, logprobs: Logprobs | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        if self.chat:
            return logprobs.of_chat(self.top)
        return logprobs.document()

    def usage_event(self, usage: Mapping[str, int]) -> bytes:
        """The last event of a stream, with the numbers of tokens, if the request asks for them."""
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
    """The numbers of tokens of a request."""
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def problem(
    message: str, kind: str = "invalid_request_error", field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's form; clients react to some of the codes."""
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def _of_chat(token: str, chance: float | None) -> dict[str, Any]:
    """One token of a chat. Its bytes are unknown if it is only a part of a character."""
    partial = "\ufffd" in token
    return {"token": token, "logprob": chance, "bytes": None if partial else list(token.encode())}


def error_event(message: str) -> bytes:
    """An error in the middle of a stream."""
    return _event(problem(message, "server_error"))


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
