"""``torchrun -m slipway.trainer config.json`` (or ``python -m slipway.trainer config.json``): one rank of the training
in the file.

A rank that is started by hand claims the training for itself (`slipway.trainer.record.incarnation`): an older process
that still trains it can commit nothing more.

Exit codes: `slipway.trainer.base.processes`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.trainer.base import console
from slipway.trainer.base.processes import ExitCode, bind_to_launcher
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.config import resolved as config
from slipway.trainer.diagnosis import stacks
from slipway.trainer.node import settings
from slipway.trainer.record import causes, fence, incarnation, rank_exit

if TYPE_CHECKING:
    from slipway.trainer.node.world import World


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments == ["--help"]:
        console.warn("usage: python -m slipway.trainer CONFIG.json")
        return ExitCode.UNUSABLE
    # SIGUSR2 asks for a profile. Until there is something to profile, it must not end the rank.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    bind_to_launcher()
    stacks.open_file()
    try:
        resolved = config.load(Path(arguments[0]))
    except (OSError, ValueError) as error:  # a file that is there is the configuration, whatever is wrong with it
        console.warn(f"trainer: {error}")
        return ExitCode.FAILED if isinstance(error, OSError) else ExitCode.UNUSABLE
    try:
        with rank_exit.noted(Path(resolved.placement.store)):
            return _train(resolved)
    except fence.Superseded as error:
        console.warn(f"trainer: {error}")
        return ExitCode.SUPERSEDED
    except (OSError, ValueError, causes.Failure) as error:
        console.warn(f"trainer: {error}")
        return ExitCode.UNUSABLE if rank_exit.kind_of(error) == causes.CONFIGURATION else ExitCode.FAILED


def _train(resolved: config.Config) -> int:
    if resolved.storage.key_file:
        encryption.read_key(Path(resolved.storage.key_file))
    settings.set_environment(resolved, os.environ)  # torch and its libraries read some variables when they are imported
    # Imported only now: a rank must be bound to its parent before it spends a second on importing torch.
    from slipway.trainer import run
    from slipway.trainer.elastic import process_groups

    with process_groups.join(resolved) as world:
        outcome = run.train(resolved, world, lambda ranks: _claimed_token(Path(resolved.placement.store), ranks))
        if world.is_rank_zero:
            console.say(f"trainer: {outcome}")
    return ExitCode.DONE


def _claimed_token(store: Path, world: "World") -> fence.Token:
    """The token to commit under. Raises fence.Superseded when a newer one is claimed already."""
    agreed = world.broadcast(incarnation.claimed(store) if world.is_rank_zero else None)
    assert agreed is not None
    return agreed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
