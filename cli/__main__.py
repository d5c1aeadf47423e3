"""``python -m slipway.cli`` is the command `slipway`: a process that ends as soon as it has said its last word.

Python takes every module apart before it ends a process. After Dagster was imported, that takes 0.4 s of a processor,
which are half a minute on a busy machine, and nobody needs it: what is to be done at the end has been done before.
"""

import atexit
import os
import sys

from slipway.cli.main import FAILED, main


def command() -> None:
    """Do what the arguments of this process say, and end it with their exit code.

    Threads are awaited, and what else is registered for the end is done first, since it was registered later.
    """
    code = FAILED
    process = os.getpid()

    def leave() -> None:
        if os.getpid() != process:  # a child that was forked ends as it likes
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            return  # Python says it, as of any program
        os._exit(code)

    atexit.register(leave)
    try:
        code = main()
    except SystemExit as end:  # of typer, once it has told a shell what a word may become; fish asks for this code
        code = end.code if isinstance(end.code, int) else FAILED
    sys.exit(code)


if __name__ == "__main__":
    command()
