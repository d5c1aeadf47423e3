"""Asset prefix: how a recipe, or a registered model, is named in the UI: by letters, digits and underscores.

The names of recipes differ in what is left of them here; those of registered models may not, and `load` says so.
"""

import re


def lane(name: str) -> str:
    """The name with an underscore for each other sign: `llama-3.1` is `llama_3_1`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
