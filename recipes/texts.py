"""The texts of recipes, as they were when they were read: whoever loads them again from these gets the same recipes.

A run has the recipes that its code location was loaded with, whatever a person has written into the files since.
"""

import base64
import json
import zlib
from pathlib import Path

from recipes.kinds import KINDS
from trainer.base import parsing

Texts = dict[str, str]
"""By their paths in the folder, such as `trainings/tiny.yaml`; bytes that are no UTF-8 are escaped as surrogates."""


def read(folder: Path) -> Texts:
    """The texts of all recipes of a folder. Raises OSError for a file that cannot be read."""
    paths = [path for kind in KINDS for path in sorted((folder / kind).glob("[!.]*.y*ml"))]
    return {f"{path.parent.name}/{path.name}": path.read_bytes().decode(errors="surrogateescape") for path in paths}


def encoded(text: str) -> bytes:
    """The bytes that a text was read from."""
    return text.encode(errors="surrogateescape")


def packed(written: Texts) -> str:
    """The texts as one short text, which `unpacked` takes apart."""
    return base64.b64encode(zlib.compress(json.dumps(written).encode())).decode()


def unpacked(text: str) -> Texts:
    """What `packed` was given."""
    found: Texts = parsing.value(zlib.decompress(base64.b64decode(text)))
    return found
