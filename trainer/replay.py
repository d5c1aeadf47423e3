"""``python -m trainer.replay CONFIG.json --from STEP --steps K``: repeat steps of a training and compare.

`slipway replay` starts it for a training of the platform. The steps start from the checkpoint of STEP, in a temporary
training store: nothing of the original training is changed. The loss and gradient norm of each step are compared with
the ledger's, and the tensors with those of the checkpoints that the original saved at these steps. With as many ranks
as the original had (under torchrun if there were several) they are bitwise equal; a difference means that the hardware,
the software or a checkpoint has changed.

Exit codes: 0 bitwise equal, 3 within the tolerance, 1 different, 2 the steps cannot be replayed. torchrun turns every
code but 0 into 1; the last line of the output has the result.
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

from trainer.checkpoint import state
from trainer.config import resolved as configuration
from trainer.config.operation import Observation
from trainer.config.resolved import Config
from trainer.loop import Trainer
from trainer.node.world import World, join
from trainer.record import fence, files, ledger
from trainer.record.fence import Commit
from trainer.record.recorder import RankRecorder
from trainer.record.scores import Diverged

EQUAL, DIFFERENT, UNUSABLE, WITHIN = 0, 1, 2, 3
TOLERANCE = 1e-4
"""Relative: about a thousand roundings of fp32, the effect of another order of sums over several steps."""
COMPARED = ("loss", "gradient_norm")


@dataclass(frozen=True)
class StepDifference:
    """One value that is not bitwise equal to the original."""

    what: str
    largest: float
    """The largest absolute difference."""
    relative: float
    """The largest difference, divided by the largest absolute value."""

    def __str__(self) -> str:
        return f"{self.what} differs by up to {self.largest:.3g} ({self.relative:.3g} of its largest value)"


@dataclass(frozen=True)
class ReplayFinding:
    """The result of a replay: the exit code, and a line for people."""

    code: int
    text: str


def replay(config: Config, world: World, first: int, steps: int, tolerance: float) -> ReplayFinding:
    """Repeat `steps` steps from the checkpoint of step `first`, up to the first difference beyond `tolerance`.

    Raises ValueError when there is no such checkpoint, and when the store has nothing to compare the steps with.
    """
    original = _Original.read(config, world, first, steps)
    scratch = Path(world.from_leader(tempfile.mkdtemp(prefix="replay-") if world.leads else ""))
    left_out = Path(config.placement.store) / files.SKIPPED
    if world.leads and left_out.is_dir():
        shutil.copytree(left_out, scratch / files.SKIPPED)
    try:
        with (
            RankRecorder(scratch, fence.Token(1), world.rank) as recorder,
            contextlib.closing(_trainer(config, world, scratch, recorder)) as trainer,
        ):
            found = list(_differences(trainer, original, tolerance))
    except Diverged as error:
        return ReplayFinding(DIFFERENT, f"different: {error}")
    finally:
        if world.local_rank == 0:
            shutil.rmtree(scratch, ignore_errors=True)
    if not found:
        return ReplayFinding(EQUAL, f"bitwise equal: {original}")
    if _is_within(found[-1], tolerance):
        largest = max(found, key=lambda each: each.relative)
        return ReplayFinding(WITHIN, f"within {tolerance:g}: first {found[0]}; largest {largest}; {original}")
    return ReplayFinding(DIFFERENT, f"different: {found[-1]}; {original}")


@dataclass(frozen=True)
class _Original:
    """The records of the steps in the original training."""

    start: Commit
    steps: range
    recorded: dict[int, dict[str, float]]
    """The recorded values of each step, by step."""
    later: dict[int, Commit]
    """The checkpoints of these steps, by step."""
    ranks: int
    """The number of ranks that did these steps."""

    @classmethod
    def read(cls, config: Config, world: World, first: int, count: int) -> "_Original":
        """Read the training's store on rank 0, for all ranks. Raises ValueError for steps that are not on record."""
        store, steps = Path(config.placement.store), range(first + 1, first + count + 1)
        commits = {commit.step: commit for commit in world.from_leader(fence.commits(store) if world.leads else [])}
        events = world.from_leader(ledger.read(store) if world.leads else [])
        if first not in commits:
            raise ValueError(f"--from: found no checkpoint of step {first}, expected one of {sorted(commits)}")
        done = [event for event in events if event["event"] == "step" and event["step"] in steps]
        later = {step: commit for step, commit in commits.items() if step in steps}
        if not done and not later:
            raise ValueError(
                f"--steps: found no record of steps {steps[0]} to {steps[-1]}, expected steps that were done"
            )
        recorded = {event["step"]: {name: event[name] for name in COMPARED} for event in done}
        return cls(commits[first], range(first + 1, max(*recorded, *later) + 1), recorded, later, _ranks(events, done))

    def __str__(self) -> str:
        steps = f"steps {self.steps[0]} to {self.steps[-1]} from checkpoint {self.start.name}"
        return f"{steps}, against {len(self.recorded)} losses and {len(self.later)} checkpoints of {self.ranks} ranks"


def _ranks(events: list[dict[str, Any]], done: list[dict[str, Any]]) -> int:
    """The number of ranks of the last incarnation that did any of the steps; 0 where no step is on record."""
    incarnation = done[-1]["incarnation"] if done else None
    worlds = [each["world"] for each in events if each["event"] == "started" and each["incarnation"] == incarnation]
    return int(worlds[-1]) if worlds else 0


def _trainer(config: Config, world: World, scratch: Path, recorder: RankRecorder) -> Trainer:
    """The same training in the store `scratch`; checkpoints are only read."""
    placement = dataclasses.replace(config.placement, store=str(scratch))
    again = dataclasses.replace(config, training=scratch.name, placement=placement, observation=Observation())
    return Trainer(again, world, fence.Token(1), recorder)


def _differences(trainer: Trainer, original: _Original, tolerance: float) -> Iterator[StepDifference]:
    """The differences, in the order of the steps, up to the first one beyond the tolerance."""
    _restore(trainer, original.start)
    for step in original.steps:
        trainer.train_step(False)
        for difference in _step_differences(trainer, original, step):
            yield difference
            if not _is_within(difference, tolerance):
                return


def _step_differences(trainer: Trainer, original: _Original, step: int) -> Iterator[StepDifference]:
    for name, expected in original.recorded.get(step, {}).items():
        found = trainer.metrics[name]
        if found != expected:
            apart = abs(found - expected)
            yield StepDifference(f"the {name.replace('_', ' ')} of step {step}", apart, apart / abs(expected))
    if step in original.later:
        mine = _copies(trainer)
        _restore(trainer, original.later[step])
        yield from _tensor_differences(mine, _copies(trainer), step, trainer.world)


def _restore(trainer: Trainer, commit: Commit) -> None:
    """Load this checkpoint of the original into the trainer; its record is added to the temporary store."""
    if trainer.world.leads:
        holder = fence.newest_claim(trainer.store)
        if holder is None or holder.token != commit.token:
            fence.claim(trainer.store, commit.token, nodes=("local",), cause="replay", by="replay")
        fence.commit(trainer.store, commit)
    trainer.world.gather(None)
    trainer.token = commit.token
    trainer.restore()
    if trainer.step != commit.step:
        reason = "; ".join(fence.set_aside_reasons(trainer.store).values()) or "another rank could not read it"
        raise ValueError(f"checkpoint {commit.name} cannot be loaded: {reason}")


def _copies(trainer: Trainer) -> dict[str, Tensor]:
    """Copies of this rank's part of every tensor of a checkpoint, by name, in host memory."""
    live = state.collect(trainer.engine, trainer.world.rank).tensors
    return {name: _local(value).detach().to("cpu", copy=True) for name, value in live.items()}


def _local(tensor: Any) -> Tensor:
    """This rank's part of a DTensor; any other tensor as it is."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _tensor_differences(
    mine: dict[str, Tensor], theirs: dict[str, Tensor], step: int, world: World
) -> list[StepDifference]:
    """The tensors that differ on any rank: those of the model, then those of the optimiser."""
    here = {
        name: _largest_difference(mine[name], other)
        for name, other in theirs.items()
        if not _same_bits(mine[name], other)
    }
    everywhere = world.gather(here)
    found = {name: [each[name] for each in everywhere if name in each] for name in theirs}
    return [StepDifference(f"{name} after step {step}", *max(apart)) for name, apart in found.items() if apart]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)))


def _largest_difference(one: Tensor, other: Tensor) -> tuple[float, float]:
    """The largest absolute difference, and that divided by the largest value."""
    apart = float((one.double() - other.double()).abs().max())
    return apart, apart / max(float(other.double().abs().max()), sys.float_info.min)


def _is_within(difference: StepDifference, tolerance: float) -> bool:
    """Whether a difference is within the tolerance; False for a value that is not a number."""
    return difference.relative <= tolerance


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.replay", description="Repeat steps of a training and compare."
    )
    parser.add_argument("config", type=Path, help="the training's resolved configuration")
    parser.add_argument("--from", dest="first", type=int, required=True, help="the step of a checkpoint")
    parser.add_argument("--steps", type=int, required=True, help="how many steps to repeat")
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
