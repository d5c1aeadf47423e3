"""The texts of recipes, as they were when they were read: whoever loads them again from these gets the same recipes.

A run has the recipes that its code location was loaded with, whatever a person has written into the files since.
"""

import base64
import json
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from recipes.kinds import KINDS
from trainer.base import parsing


class UnreadText(NamedTuple):
    """In the place of the text of a file that cannot be read: a folder, a dangling link, one without permission."""

    why: str
    """What the system says of it."""


Texts = dict[str, str | UnreadText]
"""By their paths in the folder, such as `trainings/tiny.yaml`; bytes that are no UTF-8 are escaped as surrogates."""


def read(folder: Path) -> Texts:
    """The texts of all recipes of a folder; one that cannot be read leaves the others."""
    paths = [path for kind in KINDS for path in sorted((folder / kind).glob("[!.]*.y*ml"))]
    return {f"{path.parent.name}/{path.name}": _text(path) for path in paths}


def _text(path: Path) -> str | UnreadText:
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        return UnreadText(os.strerror(error.errno) if error.errno else str(error))


def encoded(text: str) -> bytes:
    """The bytes that a text was read from."""
    return text.encode(errors="surrogateescape")


def packed(written: Texts) -> str:
    """The texts as one short text, which `unpacked` takes apart."""
    return base64.b64encode(zlib.compress(json.dumps(written).encode())).decode()


def unpacked(text: str) -> Texts:
    """What `packed` was given."""
    found: dict[str, str | list[str]] = parsing.value(zlib.decompress(base64.b64decode(text)))
    return {name: each if isinstance(each, str) else UnreadText(*each) for name, each in found.items()}
