"""The texts of recipe files at the time of reading, from which the same recipes can be loaded again.

A run uses the recipes with which its code location was loaded, even if a person has edited the files since.
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
"""The most bytes of a recipe file, so that no file delays every reader. A long list belongs in a file of its own."""


class UnreadText(NamedTuple):
    """Stands for the text of a file that cannot be read: a folder, a pipe, a dangling link, or a file that is too long
    or protected."""

    why: str
    """The system's error, or what the file is instead."""
    expected: str = "a file that can be read"


Texts = dict[str, str | UnreadText]
"""Texts by path in the folder, such as `trainings/tiny.yaml`; bytes that are not UTF-8 are escaped as surrogates."""


def read(folder: Path) -> Texts:
    """The texts of all recipes of a folder. A file that cannot be read does not affect the others."""
    paths = [path for kind in KINDS for path in sorted((folder / kind).glob("[!.]*.y*ml"))]
    return {f"{path.parent.name}/{path.name}": _text(path) for path in paths}


def _text(path: Path) -> str | UnreadText:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return UnreadText("not a regular file")
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
    """Open a file without waiting: a blocking open of a pipe waits until somebody opens its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def encoded(text: str) -> bytes:
    """The bytes that a text was read from."""
    return text.encode(errors="surrogateescape")


def packed(written: Texts) -> str:
    """The texts compressed into one text, for `unpacked`."""
    return base64.b64encode(zlib.compress(json.dumps(written).encode())).decode()


def unpacked(text: str) -> Texts:
    """The texts that `packed` compressed."""
    packed: dict[str, str | list[str]] = parsing.value(zlib.decompress(base64.b64decode(text)))
    return {name: content if isinstance(content, str) else UnreadText(*content) for name, content in packed.items()}
