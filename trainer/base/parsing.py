"""Parsing: JSON that somebody else wrote becomes a value, or one kind of error.

Python's own parser answers bytes that are no JSON with four kinds of error; of these, a text of opening brackets ends
the reader with a RecursionError, which is no ValueError. Here all of them are one, so that whoever refuses damaged
bytes refuses these too. `tests/test_parsing.py` makes sure that nothing that reads calls Python's parser itself.
"""

import json
from typing import Any


def value(data: str | bytes | bytearray) -> Any:
    """The JSON value in a text, or in UTF-8. Raises json.JSONDecodeError, a ValueError, for all that is none."""
    try:
        return json.loads(data)
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
