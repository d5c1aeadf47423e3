"""The vocabulary of a tokenizer, in the JSON of the library `tokenizers`; read without that library."""

from typing import Any

from slipway.trainer.base import parsing

END_OF_DOCUMENT = "<|endofdocument|>"
ENDS = (END_OF_DOCUMENT, "<|endoftext|>", "<|end_of_text|>", "</s>")
"""Tokens that end a document, as this and other tokenizers call them."""


def end_of_document(value: dict[str, Any]) -> dict[str, Any]:
    """The token that ends a document: {content, id, ...}. Raises ValueError when there is none."""
    for name in ENDS:
        for token in value["added_tokens"]:
            if token["content"] == name:
                return dict(token)
    raise ValueError(f"it has none of the tokens that end a document: {', '.join(ENDS)}")


def ids(value: dict[str, Any]) -> dict[str, int]:
    """The id of every token, added ones included."""
    return {**value["model"]["vocab"], **{token["content"]: token["id"] for token in value["added_tokens"]}}


def size(value: dict[str, Any]) -> int:
    """One more than the highest id."""
    return max(ids(value).values()) + 1


def difference(own: bytes, other: bytes) -> str | None:
    """A sentence about the first difference of two tokenizers, in the order of the ids; None if there is none.

    Equal vocabularies and merges give equal ids, even if the two files differ in form.
    """
    own_document = parsing.value(own)
    other_document = parsing.value(other)
    tokens, others = ({id: token for token, id in ids(value).items()} for value in (own_document, other_document))
    for id in sorted({*tokens, *others}):
        if tokens.get(id) != others.get(id):
            return f"token {id} is {tokens.get(id)!r} in one and {others.get(id)!r} in the other"
    return None if _merges(own_document) == _merges(other_document) else "their merges differ"


def _merges(value: dict[str, Any]) -> list[list[str]]:
    """The merges as pairs; older files write a pair as one text."""
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in value["model"]["merges"]]
