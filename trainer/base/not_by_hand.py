"""What a module that only Slipway's own processes start says to a person who asks it for help."""

import sys

from slipway.trainer.base import console


def explain(module: str, does: str) -> None:
    """With --help as the first argument, say in one line what the module does and who starts it, and exit."""
    if sys.argv[1:2] in (["--help"], ["-h"]):
        console.say(f"python -m {module} {does}. Slipway starts it; what a person calls is in slipway --help.")
        raise SystemExit(0)
