"""Texts and tokens: the tokenizer of a served model, its chat template, and the growing text of an answer."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipway.serving.api.request_parsing import BadRequest, Message, short
from slipway.trainer.base import parsing, regular_file
from slipway.trainer.data import vocabulary
from slipway.trainer.start.huggingface import GENERATION, TOKENIZER, TOKENIZER_CONFIG

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
"""The special tokens that a chat template may use."""


class ServedTokenizer:
    """The tokenizer in an exported model's folder."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._settings = _settings(folder / TOKENIZER_CONFIG)
        self._template = self._settings.get("chat_template")
        self.ends = _ends(folder)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def token(self, id: int) -> str:
        """The text of one token, which may be only a part of a character."""
        text: str = self.tokenizer.decode([id], skip_special_tokens=False)
        return text

    def chat(self, messages: Sequence[Message]) -> str:
        """The prompt of a chat, from the model's own template, or line by line if the model has no template.

        Raises BadRequest for messages that the template refuses.
        """
        if not self._template:
            return "".join(f"{message.role}: {message.content}\n" for message in messages) + "assistant:"
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise jinja2.TemplateError(message)

        # The variables that transformers passes to a template besides the messages.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        variables = {"raise_exception": refuse, "strftime_now": time.strftime, **self._special_tokens()}
        try:
            template = environment.from_string(self._template)
            return template.render(
                messages=[vars(message) for message in messages], add_generation_prompt=True, **variables
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise BadRequest("messages", f"the model's template refuses them: {short(str(error))}") from None

    def _special_tokens(self) -> dict[str, str]:
        """The texts of the special tokens in the tokenizer's settings, such as `bos_token`."""
        named = {name: self._settings.get(name) for name in SPECIAL}
        texts = {
            name: special_token.get("content") if isinstance(special_token, dict) else special_token
            for name, special_token in named.items()
        }
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    def growing(self, stops: Sequence[str]) -> "GrowingText":
        """A new, empty answer that stops at one of these texts."""
        return GrowingText(self, stops)


class GrowingText:
    """The text of an answer in progress. It releases characters once no later token can change them."""

    def __init__(self, tokenizer: ServedTokenizer, stops: Sequence[str]) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stops = stops
        self._stream = DecodeStream(skip_special_tokens=True)
        self._held_back = max((len(stop) for stop in stops), default=1) - 1
        self.text = ""
        self.stopped = False
        self._read = self._sent = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Decode the new tokens; `tokens` are all tokens of the answer so far."""
        for token in tokens[self._read :]:
            self.text += self._stream.step(self._tokenizer.tokenizer, token) or ""
        self._read = len(tokens)
        positions = [position for position in map(self.text.find, self._stops) if position >= 0]
        if positions:
            self.text = self.text[: min(positions)]
            self.stopped = True

    def end(self, tokens: Sequence[int]) -> None:
        """The answer has ended, so an incomplete character at its end is final."""
        if self.stopped:
            return
        decoded = self._tokenizer.decode(tokens)
        if decoded.startswith(self.text):
            self.text = decoded
        self._held_back = 0

    def take(self) -> str:
        """The characters that are final since the last call."""
        end = len(self.text) if self.stopped else max(self._sent, len(self.text) - self._held_back)
        piece = self.text[self._sent : end]
        self._sent = max(self._sent, end)
        return piece


def _settings(path: Path) -> dict[str, Any]:
    try:
        return dict(parsing.value(regular_file.read(path)))
    except FileNotFoundError:
        return {}


def _ends(folder: Path) -> frozenset[int]:
    """The ids of the tokens that end an answer."""
    named = _settings(folder / GENERATION).get("eos_token_id")
    if named is not None:
        return frozenset(named if isinstance(named, list) else [named])
    try:
        return frozenset([vocabulary.end_of_document(_settings(folder / TOKENIZER))["id"]])
    except (ValueError, KeyError):
        return frozenset()
