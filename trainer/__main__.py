"""``torchrun -m trainer config.json`` (or ``python -m trainer config.json``): train what the file says.

Started by a launcher, a rank trains under the incarnation in SLIPWAY_INCARNATION. Started by hand it
claims the next one, and so takes the training over from whoever had it.

Exit codes: 0 done, or stopped as asked; 2 a configuration that cannot be trained; 3 superseded; 1 the rest
(diverged, a disk that cannot be written).
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import config, fence
from trainer.processes import die_with_parent

if TYPE_CHECKING:
    from trainer.world import World

FAILED, UNUSABLE, SUPERSEDED = 1, 2, 3


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m trainer CONFIG.json", file=sys.stderr)
        return UNUSABLE
    if "TORCHELASTIC_RUN_ID" in os.environ or "SLIPWAY_NODE" in os.environ:
        die_with_parent()
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
    # Imported only now: a rank must be bound to its parent before it spends seconds on importing torch.
    from trainer import loop, world
    from trainer.exhaustion import OutOfMemory

    with world.join(resolved) as place:
        token = _claimed_token(Path(resolved.placement.store), place)
        try:
            outcome = loop.train(resolved, place, token)
        except (loop.Diverged, OutOfMemory) as error:
            print(f"trainer: {error}", file=sys.stderr)
            return FAILED
        if place.leads:
            print(f"trainer: {outcome}", flush=True)
    return 0


def _claimed_token(store: Path, place: "World") -> fence.Token:
    """The token to commit under. Raises fence.Superseded when a newer one is claimed already."""
    token = None
    if place.leads:
        given = os.environ.get("SLIPWAY_INCARNATION")
        token = _restarted(store, int(given)) if given else _taken_over(store)
        fence.check(store, token)
    agreed = place.from_leader(token)
    assert agreed is not None
    return agreed


def _restarted(store: Path, incarnation: int) -> fence.Token:
    """The incarnation's token in the generation that torchrun is at; each restart claims a generation of its own."""
    token = fence.Token(incarnation, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    holder = fence.newest_claim(store)
    if token.generation > 0 and holder is not None and holder.token < token:
        _claim(store, token, holder.nodes, "ranks restarted by torchrun")
    return token


def _taken_over(store: Path) -> fence.Token:
    """The next incarnation, claimed for a process that was started by hand."""
    holder = fence.newest_claim(store)
    token = fence.Token(holder.token.incarnation + 1 if holder else 1)
    _claim(store, token, ("local",), "started by hand")
    return token


def _claim(store: Path, token: fence.Token, nodes: tuple[str, ...], cause: str) -> None:
    """Raises fence.Superseded when somebody else has claimed meanwhile, even if it was the same token."""
    if not fence.claim(store, token, nodes=nodes, cause=cause, by="trainer"):
        raise fence.Superseded(f"{token} was claimed by somebody else")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
