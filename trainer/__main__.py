"""``torchrun -m trainer config.json`` (or ``python -m trainer config.json``): train what the file says.

Started by hand it takes the training over from whoever had it (`trainer.incarnation`).

Exit codes: 0 done, or stopped as asked; 2 a configuration that cannot be trained; 3 superseded; 1 the rest
(diverged, a disk that cannot be written).
"""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import config, fence, incarnation
from trainer.checkpoint import sealing
from trainer.processes import bind_to_launcher
from trainer.scores import Diverged

if TYPE_CHECKING:
    from trainer.world import World

FAILED, UNUSABLE, SUPERSEDED = 1, 2, 3


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m trainer CONFIG.json", file=sys.stderr)
        return UNUSABLE
    # It asks for a profile; until there is something to profile it must not end the rank.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    bind_to_launcher()
    try:
        return _train(config.load(Path(arguments[0])))
    except fence.Superseded as error:
        print(f"trainer: {error}", file=sys.stderr)
        return SUPERSEDED
    except ValueError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return UNUSABLE
    except OSError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return FAILED


def _train(resolved: config.Config) -> int:
    if resolved.storage.key_file:
        sealing.read_key(Path(resolved.storage.key_file))
    # Imported only now: a rank must be bound to its parent before it spends seconds on importing torch.
    from trainer import loop, world
    from trainer.exhaustion import OutOfMemory

    with world.join(resolved) as place:
        token = _claimed_token(Path(resolved.placement.store), place)
        try:
            outcome = loop.train(resolved, place, token)
        except (Diverged, OutOfMemory) as error:
            print(f"trainer: {error}", file=sys.stderr)
            return FAILED
        if place.leads:
            print(f"trainer: {outcome}", flush=True)
    return 0


def _claimed_token(store: Path, place: "World") -> fence.Token:
    """The token to commit under. Raises fence.Superseded when a newer one is claimed already."""
    agreed = place.from_leader(incarnation.claimed(store) if place.leads else None)
    assert agreed is not None
    return agreed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
