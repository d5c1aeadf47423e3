"""The asset prefix of a recipe or a registered model: its name in letters, digits and underscores.

Two recipes never share a prefix, by the rules for their names. Two registered models could, so `load` checks them.
"""

import re


def lane(name: str) -> str:
    """The name with every other character replaced by an underscore: `llama-3.1` becomes `llama_3_1`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
