"""Parsing: foreign JSON becomes a value, or one kind of error.

Python's own parser raises four kinds of errors for bytes that are no JSON; for a text of opening brackets it raises
RecursionError, which is no ValueError. Here all of them are one, so code that handles damaged bytes handles all.
`tests/test_parsing.py` makes sure that no reader calls Python's parser itself.

The depth that Python's parser reaches depends on the depth of its caller, and a deep value may be too deep for code
that shows or compares it. So the depth has its own bound.
"""

import json
from typing import Any

DEEPEST = 200
"""Lists and objects within one another, at most."""


def value(data: str | bytes | bytearray) -> Any:
    """The JSON value in a text, or in UTF-8. Raises json.JSONDecodeError, a ValueError, if it is no JSON."""
    try:
        document = json.loads(data)
        if not _is_deeper(data, document):
            return document
        reason = f"found more than {DEEPEST} sections within one another"
    except json.JSONDecodeError:
        raise
    except RecursionError:
        reason = "found sections within sections without an end"
    except UnicodeDecodeError as error:
        # In Latin-1 each byte is a character, so that the error's line is right.
        raise json.JSONDecodeError(f"not UTF-8: {error.reason}", error.object.decode("latin-1"), error.start) from None
    except ValueError as error:  # a number of more digits than Python takes
        reason = str(error)
    raise json.JSONDecodeError(reason, "", 0)


def _is_deeper(data: str | bytes | bytearray, document: Any) -> bool:
    """Whether a value has more than `DEEPEST` nested sections; most texts do not have that many in all."""
    many = data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")
    if many <= DEEPEST:
        return False
    level = [document]
    for _ in range(DEEPEST):
        within = (node.values() if isinstance(node, dict) else node for node in level)
        level = [inner for section in within for inner in section if isinstance(inner, dict | list)]
        if not level:
            return False
    return True
