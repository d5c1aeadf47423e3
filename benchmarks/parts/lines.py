"""Lines: what a benchmark prints, a JSON object for each metric, as soon as it is measured."""

import json
from collections.abc import Mapping
from typing import Any


def print_line(line: Mapping[str, Any]) -> None:
    """Print a metric at once: of a benchmark that fails or is ended later, what was measured before is there."""
    print(json.dumps(line), flush=True)
