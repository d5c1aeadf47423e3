"""``python -m deploy.embedded demo | dev | status | stop TRAINING``: the embedded instance's command line."""

import argparse
import os
import sys
import time

from deploy.embedded import CannotStart
from recipes.load import load, recipes_folder
from resources.home import Home

USAGE, FAILED, INTERRUPTED = 2, 1, 130


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return int(arguments.command(_home(), arguments) or 0)
    except KeyboardInterrupt:
        print("\ninterrupted; everything made so far is kept, the next run goes on from there", file=sys.stderr)
        return INTERRUPTED
    except (CannotStart, ValueError, OSError) as error:
        print(f"slipway: {error}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verbs.add_parser("demo", help="make everything, from corpus to champion").set_defaults(command=_demo)
    verbs.add_parser("dev", help="open the UI and keep it running").set_defaults(command=_dev)
    verbs.add_parser("status", help="the trainings and where they stand").set_defaults(command=_status)
    stop = verbs.add_parser("stop", help="stop a training, with a checkpoint of the step it has reached")
    stop.add_argument("training")
    stop.set_defaults(command=_stop)
    return parser


def _home() -> Home:
    """The home that the environment names. Raises ValueError when it is a file."""
    home = Home.of()
    if home.root.exists() and not home.root.is_dir():
        raise ValueError(f"SLIPWAY_HOME {home.root}: found a file, expected a folder, or nothing yet")
    return home


def _port() -> int | None:
    """SLIPWAY_PORT, None when it is not set. Raises ValueError for what is no port."""
    given = os.environ.get("SLIPWAY_PORT")
    if given is None:
        return None
    if not given.isdecimal() or not 0 < int(given) < 65536:
        raise ValueError(f"SLIPWAY_PORT: found {given!r}, expected a port from 1 to 65535")
    return int(given)


def _demo(home: Home, _: argparse.Namespace) -> int:
    recipes, port = load(recipes_folder()), _port()
    from deploy.embedded import demo

    return demo.run(recipes, home, port)


def _dev(home: Home, _: argparse.Namespace) -> int:
    load(recipes_folder())
    from deploy.embedded import instance, jobs

    try:
        with instance.running(home, _port() or instance.DEFAULT_PORT) as running:
            print(f"Slipway is at {running.url}; Ctrl-C closes it (home: {home.root})", flush=True)
            while True:
                running.check()
                time.sleep(1)
    except KeyboardInterrupt:
        for training in sorted({name.rpartition("-i")[0] for name in jobs.live(home)}):
            print(f"\n{training} goes on; to stop it: python -m deploy.embedded stop {training}")
        return 0


def _status(home: Home, _: argparse.Namespace) -> int:
    from deploy.embedded import trainings

    return trainings.status(home)


def _stop(home: Home, arguments: argparse.Namespace) -> int:
    from deploy.embedded import trainings

    return trainings.stop(home, arguments.training)


if __name__ == "__main__":
    sys.exit(main())
