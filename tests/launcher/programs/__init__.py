"""Small rank programs. Each appends a line to the file `notes` of its config as it starts; none imports torch."""

import json
import os
import sys
from pathlib import Path
from typing import Any


def start() -> dict[str, Any]:
    """Read the config, note that this rank runs, and return the config."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_bytes())
    note(config, {"pid": os.getpid(), "environment": dict(os.environ), "config": config})
    return config


def note(config: dict[str, Any], fact: dict[str, Any]) -> None:
    """Append a line; one write of a few kilobytes is never torn."""
    with Path(config["notes"]).open("a") as file:
        file.write(json.dumps(fact) + "\n")
