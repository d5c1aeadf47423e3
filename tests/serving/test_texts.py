"""Texts and tokens: the chats of a model that has a template of its own."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from slipway.serving.api.request_parsing import BadRequest, Message
from slipway.serving.api.texts import ServedTokenizer

CHAT = [Message("system", "Be brief."), Message("user", "Hello")]


def tokenizer(folder: Path, template: object, **settings: object) -> ServedTokenizer:
    """The tokenizer of a model with this template."""
    Tokenizer(WordLevel({"<end>": 0}, "<end>")).save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **settings}))
    return ServedTokenizer(folder)


def test_a_template_has_the_messages_and_the_special_tokens(tmp_path: Path):
    template = (
        "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}"
        "{{ message.role }}={{ message.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"
    )
    chat_tokenizer = tokenizer(tmp_path, template, bos_token="<s>", eos_token={"content": "</s>", "special": True})
    assert chat_tokenizer.chat(CHAT) == "<s>user=Hello</s>!"


def test_messages_that_the_template_refuses_are_reported_with_its_reason(tmp_path: Path):
    chat_tokenizer = tokenizer(tmp_path, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(BadRequest, match="messages: the model's template refuses them: roles must alternate"):
        chat_tokenizer.chat(CHAT)


@pytest.mark.parametrize("template", ["{% for %}", "{{ messages[0].content + 1 }}", "{{ messages.nothing.more }}"])
def test_a_template_that_cannot_be_used_is_reported(tmp_path: Path, template: str):
    with pytest.raises(BadRequest, match="the model's template refuses them"):
        tokenizer(tmp_path, template).chat(CHAT)


def test_a_model_that_was_taught_no_chats_continues_lines(tmp_path: Path):
    assert tokenizer(tmp_path, None).chat(CHAT) == "system: Be brief.\nuser: Hello\nassistant:"
