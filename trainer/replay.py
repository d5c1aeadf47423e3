"""``python -m trainer.replay CONFIG.json --from STEP --steps K``: do steps of a training again, and compare.

The steps run from the checkpoint of STEP in a training store of their own, which is thrown away: nothing of the
original's is written to. Each step's loss and gradient norm are compared with the ledger's, and every tensor with the
checkpoints that the original made on the way. With the ranks that the original had (under torchrun where it was)
they are bitwise equal; what is not says of hardware, of software or of a checkpoint that they are not what they were.

Exit codes: 0 bitwise equal, 3 within the tolerance, 1 different, 2 nothing that can be replayed. torchrun makes 1 of
all but 0; the last line says which.
"""

import argparse
import contextlib
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer import config as configuration
from trainer import fence, ledger
from trainer.checkpoint import state
from trainer.config import Config
from trainer.fence import Commit
from trainer.loop import Trainer
from trainer.operation import Observation
from trainer.scores import Diverged
from trainer.world import World, join

EQUAL, DIFFERENT, UNUSABLE, WITHIN = 0, 1, 2, 3
TOLERANCE = 1e-4
"""Relative; a thousand roundings of fp32, which is what sums in another order add up to over some steps."""
COMPARED = ("loss", "gradient_norm")


@dataclass(frozen=True)
class Difference:
    """One value that is not bitwise what it was."""

    what: str
    largest: float
    """The largest absolute difference."""
    relative: float
    """That, over the largest absolute value."""

    def __str__(self) -> str:
        return f"{self.what} differs by up to {self.largest:.3g} ({self.relative:.3g} of its largest value)"


@dataclass(frozen=True)
class Finding:
    code: int
    text: str


def replay(config: Config, world: World, first: int, steps: int, tolerance: float) -> Finding:
    """Do `steps` steps from the checkpoint of step `first` again, up to the first difference beyond `tolerance`.

    Raises ValueError where there is no such checkpoint, or nothing that the steps could be compared with.
    """
    original = _Original.read(config, world, first, steps)
    scratch = Path(world.from_leader(tempfile.mkdtemp(prefix="replay-") if world.leads else ""))
    try:
        with contextlib.closing(_trainer(config, world, scratch)) as trainer:
            found = list(_differences(trainer, original, tolerance))
    except Diverged as error:
        return Finding(DIFFERENT, f"different: {error}")
    finally:
        if world.local_rank == 0:
            shutil.rmtree(scratch, ignore_errors=True)
    if not found:
        return Finding(EQUAL, f"bitwise equal: {original}")
    if _fits(found[-1], tolerance):
        largest = max(found, key=lambda each: each.relative)
        return Finding(WITHIN, f"within {tolerance:g}: first {found[0]}; most of all {largest}; {original}")
    return Finding(DIFFERENT, f"different: {found[-1]}; {original}")


@dataclass(frozen=True)
class _Original:
    """What is on record of the steps."""

    start: Commit
    steps: range
    recorded: dict[int, dict[str, float]]
    """By step what was reported of it."""
    later: dict[int, Commit]
    """The checkpoints on the way, by step."""
    ranks: int
    """That did these steps."""

    @classmethod
    def read(cls, config: Config, world: World, first: int, count: int) -> "_Original":
        """Of the training's store, by rank 0 for all. Raises ValueError for steps that are not on record."""
        store, steps = Path(config.placement.store), range(first + 1, first + count + 1)
        commits = {commit.step: commit for commit in world.from_leader(fence.commits(store) if world.leads else [])}
        events = world.from_leader(ledger.read(store) if world.leads else [])
        if first not in commits:
            raise ValueError(f"--from: no checkpoint of step {first}; there are those of {sorted(commits)}")
        done = [event for event in events if event["event"] == "step" and event["step"] in steps]
        later = {step: commit for step, commit in commits.items() if step in steps}
        if not done and not later:
            raise ValueError(f"--steps: steps {steps[0]} to {steps[-1]} were never done; nothing to compare with")
        recorded = {event["step"]: {name: event[name] for name in COMPARED} for event in done}
        return cls(commits[first], range(first + 1, max(*recorded, *later) + 1), recorded, later, _ranks(events, done))

    def __str__(self) -> str:
        way = f"steps {self.steps[0]} to {self.steps[-1]} from checkpoint {self.start.name}"
        return f"{way}, against {len(self.recorded)} losses and {len(self.later)} checkpoints of {self.ranks} ranks"


def _ranks(events: list[dict[str, Any]], done: list[dict[str, Any]]) -> int:
    """How many ranks the last incarnation had that did any of the steps; 0 where no step is on record."""
    incarnation = done[-1]["incarnation"] if done else None
    worlds = [each["world"] for each in events if each["event"] == "started" and each["incarnation"] == incarnation]
    return int(worlds[-1]) if worlds else 0


def _trainer(config: Config, world: World, scratch: Path) -> Trainer:
    """The same training in a store of its own; checkpoints are only read."""
    placement = dataclasses.replace(config.placement, store=str(scratch))
    again = dataclasses.replace(config, training=scratch.name, placement=placement, observation=Observation())
    return Trainer(again, world, fence.Token(1))


def _differences(trainer: Trainer, original: _Original, tolerance: float) -> Iterator[Difference]:
    """What differs, in the order of the steps; nothing after the first that does not fit the tolerance."""
    _go_on_from(trainer, original.start)
    for step in original.steps:
        trainer.train_step(False)
        for difference in _of_step(trainer, original, step):
            yield difference
            if not _fits(difference, tolerance):
                return


def _of_step(trainer: Trainer, original: _Original, step: int) -> Iterator[Difference]:
    for name, expected in original.recorded.get(step, {}).items():
        found = trainer.metrics[name]
        if found != expected:
            apart = abs(found - expected)
            yield Difference(f"the {name.replace('_', ' ')} of step {step}", apart, apart / abs(expected))
    if step in original.later:
        mine = _copies(trainer)
        _go_on_from(trainer, original.later[step])
        yield from _between(mine, _copies(trainer), step, trainer.world)


def _go_on_from(trainer: Trainer, commit: Commit) -> None:
    """Put this checkpoint of the original into the trainer; the scratch store is lent its record."""
    if trainer.world.leads:
        holder = fence.newest_claim(trainer.store)
        if holder is None or holder.token != commit.token:
            fence.claim(trainer.store, commit.token, nodes=("local",), cause="replay", by="replay")
        fence.commit(trainer.store, commit)
    trainer.world.gather(None)
    trainer.restore()
    if trainer.step != commit.step:
        reason = "; ".join(fence.set_aside_reasons(trainer.store).values()) or "another rank could not read it"
        raise ValueError(f"checkpoint {commit.name} cannot be read: {reason}")


def _copies(trainer: Trainer) -> dict[str, Tensor]:
    """This rank's part of every tensor that a checkpoint holds, by name, on the host."""
    live = state.collect(trainer.engine, trainer.world.rank).tensors
    return {name: _local(value).detach().to("cpu", copy=True) for name, value in live.items()}


def _local(tensor: Any) -> Tensor:
    """This rank's part of a DTensor; any other tensor is whole."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _between(mine: dict[str, Tensor], theirs: dict[str, Tensor], step: int, world: World) -> list[Difference]:
    """The tensors that differ on any rank, in the model's order, then the optimiser's."""
    here = {name: _apart(mine[name], other) for name, other in theirs.items() if not _same_bits(mine[name], other)}
    everywhere = world.gather(here)
    found = {name: [each[name] for each in everywhere if name in each] for name in theirs}
    return [Difference(f"{name} after step {step}", *max(apart)) for name, apart in found.items() if apart]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)))


def _apart(one: Tensor, other: Tensor) -> tuple[float, float]:
    """The largest absolute difference, also as a share of the largest value."""
    apart = float((one.double() - other.double()).abs().max())
    return apart, apart / max(float(other.double().abs().max()), sys.float_info.min)


def _fits(difference: Difference, tolerance: float) -> bool:
    """False also for what is not a number."""
    return difference.relative <= tolerance


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.replay", description="Do steps of a training again.")
    parser.add_argument("config", type=Path, help="the training's resolved configuration")
    parser.add_argument("--from", dest="first", type=int, required=True, help="the step of a checkpoint")
    parser.add_argument("--steps", type=int, required=True, help="how many steps to do again")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="relative; default %(default)g")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps: found {options.steps}, expected 1 or more")
    try:
        config = configuration.load(options.config)
        with join(config) as world:
            found = replay(config, world, options.first, options.steps, options.tolerance)
    except ValueError as error:
        print(f"replay: {error}", file=sys.stderr)
        return UNUSABLE
    if world.leads:
        print(f"replay: {found.text}", flush=True)
    return found.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
