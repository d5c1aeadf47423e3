"""The texts of recipes, as they were when they were read: whoever loads them again from these gets the same recipes.

A run has the recipes that its code location was loaded with, whatever a person has written into the files since.
"""

import base64
import json
import os
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

from slipway.recipes.kinds import KINDS
from slipway.trainer.base import parsing, quantities

LONGEST = 1_000_000
"""Bytes of a recipe, at most, so that no file holds up all that read recipes. A long list has a file of its own."""


class UnreadText(NamedTuple):
    """In the place of the text of a file that cannot be read: a folder, a pipe, a dangling link, one without
    permission, one that is too long."""

    why: str
    """What the system says of it, or what it is."""
    expected: str = "a file that can be read"


Texts = dict[str, str | UnreadText]
"""By their paths in the folder, such as `trainings/tiny.yaml`; bytes that are no UTF-8 are escaped as surrogates."""


def read(folder: Path) -> Texts:
    """The texts of all recipes of a folder; one that cannot be read leaves the others."""
    paths = [path for kind in KINDS for path in sorted((folder / kind).glob("[!.]*.y*ml"))]
    return {f"{path.parent.name}/{path.name}": _text(path) for path in paths}


def _text(path: Path) -> str | UnreadText:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return UnreadText("no regular file")
            data = file.read(LONGEST + 1)
    except OSError as error:
        return UnreadText(os.strerror(error.errno) if error.errno else str(error))
    if len(data) > LONGEST:
        return UnreadText(
            f"more than {quantities.bytes_in_words(LONGEST)}",
            f"a recipe of {quantities.bytes_in_words(LONGEST)} at most",
        )
    return data.decode(errors="surrogateescape")


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; otherwise a pipe opens when somebody opens its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def encoded(text: str) -> bytes:
    """The bytes that a text was read from."""
    return text.encode(errors="surrogateescape")


def packed(written: Texts) -> str:
    """The texts as one short text, which `unpacked` takes apart."""
    return base64.b64encode(zlib.compress(json.dumps(written).encode())).decode()


def unpacked(text: str) -> Texts:
    """What `packed` was given."""
    packed: dict[str, str | list[str]] = parsing.value(zlib.decompress(base64.b64decode(text)))
    return {name: content if isinstance(content, str) else UnreadText(*content) for name, content in packed.items()}
