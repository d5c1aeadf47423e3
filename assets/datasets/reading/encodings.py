"""Encodings: how the bytes of a file become text that is not in UTF-8: by their byte order mark, or by what they spell.

Files of before Unicode name no encoding. charset-normalizer tells it by which one gives letters of a language and no
noise. It is asked only for bytes that are not UTF-8, and reads PROBED bytes of them.
"""

import codecs
from functools import lru_cache
from importlib import metadata

VERSION = metadata.version("charset-normalizer")
"""Another version may tell another encoding."""
PROBED = 1 << 16
"""Bytes by which an encoding is told: its cost grows with them, at about 1 MB/s."""
FEWEST = 64
"""Bytes below which no encoding is told: a word or two fit too many of them."""
CONTROLS = bytes(sorted({*range(32), 127} - {*b"\t\n\v\f\r\x1b"}))
"""Bytes that no text of a legacy encoding has; the escape is part of ISO 2022."""


def decoded(data: bytes, otherwise: str | None = None, tell: bool = False) -> str:
    """The text of a file's bytes: UTF-8, UTF-16 with its mark, or else the encoding `otherwise`.

    Without `otherwise` the encoding is told from the bytes, if `tell` asks for that. A byte order mark is no part of
    the text. Raises UnicodeError when the bytes are not in that encoding, or none can be told.
    """
    marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError:
        encoding = otherwise or (_told(data[:PROBED]) if tell and not marked else None)
        if encoding is None:
            raise
    return data.decode(encoding)


@lru_cache(maxsize=1)
def _told(data: bytes) -> str | None:
    """The encoding of bytes that are not UTF-8, as Python names it; None for bytes that look like no text."""
    # Imported here, because every process of Dagster loads this module and few of them read such files.
    from charset_normalizer import from_bytes

    if len(data) < FEWEST or data.translate(None, CONTROLS) != data:
        return None
    best = from_bytes(data).best()
    return None if best is None else best.encoding
