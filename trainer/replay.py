"""``python -m slipway.trainer.replay CONFIG.json --from STEP --steps K``: repeat steps of a training and compare.

`slipway replay` starts it for a training of the platform. A replay is a temporary branch from the checkpoint of STEP:
its training store is removed, and the original training does not change. It applies the hot updates of the original
after the same steps. The loss and gradient norm of each step are compared
with the ledger's, and the tensors with those of the checkpoints that the original saved at these steps. With as many
ranks as the original had (under torchrun if there were several) they are bitwise equal; a difference means that the
hardware, the software or a checkpoint has changed, or is the effect of ``--set``. An original that ended because it
diverged is replayed up to the step in which it did.

Exit codes: 0 bitwise equal, 3 within the tolerance, 1 different, 2 the steps cannot be replayed. torchrun turns every
code but 0 into 1; the last line of the output has the result.
"""

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slipway.trainer.base import console, parsing, scratch
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.checkpoint import branching, restore, state
from slipway.trainer.config import changing
from slipway.trainer.config import resolved as configuration
from slipway.trainer.config.operation import Observation
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Branch
from slipway.trainer.elastic import skipped_batches
from slipway.trainer.elastic.process_groups import join
from slipway.trainer.loop import Trainer
from slipway.trainer.node.world import World
from slipway.trainer.record import causes, fence, files, ledger
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.recorder import RankRecorder
from slipway.trainer.record.scores import Diverged

EQUAL = 0
DIFFERENT = 1
UNUSABLE = 2
WITHIN = 3
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
    step: int

    def __str__(self) -> str:
        return f"{self.what} differs by up to {self.largest:.3g} ({self.relative:.3g} of its largest value)"


@dataclass(frozen=True)
class ReplayFinding:
    """The result of a replay: the exit code, and a line for people."""

    code: int
    text: str
    step: int | None = None
    """The first step that differs."""


def replay(
    config: Config, world: World, first: int, steps: int, tolerance: float, fields: Mapping[str, Any] | None = None
) -> ReplayFinding:
    """Repeat `steps` steps from the checkpoint of step `first`, up to the first difference beyond `tolerance`.

    `fields` have other values than in the original. Raises ValueError if there is no such checkpoint, if the store has
    no figures of the steps to compare, and for fields that no continuation can change.
    """
    original = _Original.read(config, world, first, steps)
    stack = contextlib.ExitStack()
    folder = Path(
        world.broadcast(str(stack.enter_context(scratch.folder("slipway-replay"))) if world.is_rank_zero else "")
    )
    store = folder / "replay"
    left_out = Path(config.placement.store) / files.SKIPPED
    if world.is_rank_zero and left_out.is_dir():
        shutil.copytree(left_out, store / files.SKIPPED)
    differences: list[StepDifference] = []
    try:
        with (
            RankRecorder(store, fence.Token(1), world.rank) as recorder,
            contextlib.closing(_trainer(config, world, store, recorder, original, fields or {})) as trainer,
        ):
            differences += _differences(trainer, original, tolerance, fields or {})
    except Diverged as error:
        if str(error) != original.failure:
            return ReplayFinding(DIFFERENT, f"different: {error}", original.steps[0])
        original = dataclasses.replace(original, repeated=True)
    finally:
        stack.close()
        if world.local_rank == 0:  # of each node
            shutil.rmtree(folder, ignore_errors=True)
    if not differences:
        return ReplayFinding(EQUAL, f"bitwise equal: {original}")
    if _is_within(differences[-1], tolerance):
        largest = max(differences, key=lambda difference: difference.relative)
        text = f"within {tolerance:g}: first {differences[0]}; largest {largest}; {original}"
        return ReplayFinding(WITHIN, text, differences[0].step)
    return ReplayFinding(DIFFERENT, f"different: {differences[-1]}; {original}", differences[-1].step)


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
    failure: str = ""
    """Why the original ended in these steps, if it diverged."""
    repeated: bool = False
    """Whether the replay ended so too."""

    @classmethod
    def read(cls, config: Config, world: World, first: int, count: int) -> "_Original":
        """Read the training's store on rank 0, for all ranks. Raises ValueError for steps that are not on record."""
        store = Path(config.placement.store)
        steps = range(first + 1, first + count + 1)
        commits = {
            commit.step: commit for commit in world.broadcast(fence.commits(store) if world.is_rank_zero else [])
        }
        events = world.broadcast(ledger.read(store) if world.is_rank_zero else [])
        if first not in commits:
            raise ValueError(f"--from: found no checkpoint of step {first}, expected one of {sorted(commits)}")
        failed_at, failure = world.broadcast(_divergence(store, first) if world.is_rank_zero else (0, ""))
        done = [event for event in events if event["event"] == "step" and event["step"] in steps]
        later = {step: commit for step, commit in commits.items() if step in steps}
        if failed_at not in steps:
            failed_at = 0
            failure = ""
        if not done and not later and not failure:
            raise ValueError(
                f"--steps: found no record of steps {steps[0]} to {steps[-1]}, expected steps that were done"
            )
        recorded = {event["step"]: {name: event[name] for name in COMPARED} for event in done}
        last = max(failed_at, *recorded, *later)
        return cls(commits[first], range(first + 1, last + 1), recorded, later, _ranks(events, done), failure)

    def __str__(self) -> str:
        steps = f"steps {self.steps[0]} to {self.steps[-1]} from checkpoint {self.start.name}"
        against = f"against {len(self.recorded)} losses and {len(self.later)} checkpoints of {self.ranks} ranks"
        return f"{steps}, {against}" + (f"; it fails as the original did: {self.failure}" if self.repeated else "")


def _divergence(store: Path, first: int) -> tuple[int, str]:
    """The step in which the training diverged last, after `first`, and the recorded reason; (0, "") if it did not.

    Its exit has the last step that it completed.
    """
    claim = fence.newest_claim(store)
    for incarnation in range(claim.token.incarnation if claim else 0, 0, -1):
        ended = fence.past_exit(store, incarnation)
        if ended is not None and ended.kind == causes.DIVERGED and ended.step >= first:
            return ended.step + 1, ended.reason
    return 0, ""


def _ranks(events: list[dict[str, Any]], done: list[dict[str, Any]]) -> int:
    """The number of ranks of the last incarnation that did any of the steps; 0 if no step is on record."""
    incarnation = done[-1]["incarnation"] if done else None
    worlds = [event["world"] for event in events if event["event"] == "started" and event["incarnation"] == incarnation]
    return int(worlds[-1]) if worlds else 0


def _trainer(
    config: Config,
    world: World,
    store: Path,
    recorder: RankRecorder,
    original: _Original,
    fields: Mapping[str, Any],
) -> Trainer:
    """A branch of the original in `store`; checkpoints are only read."""
    changing.check_continues(fields, configuration.dump(config), original.start.step)
    placement = dataclasses.replace(config.placement, store=str(store), parent=config.placement.store)
    again = dataclasses.replace(
        config,
        training=store.name,
        placement=placement,
        observation=Observation(),
        branch=_branch(config.training, original.start),
        init=None,
    )
    if world.is_rank_zero:
        fence.claim(store, fence.Token(1), nodes=("local",), cause="replay", by="replay")
        skipped_batches.copy(Path(config.placement.store), store, original.start.step)
    world.all_gather(None)
    return Trainer(changing.changed(again, fields), world, fence.Token(1), recorder)


def _branch(training: str, commit: Commit) -> Branch:
    return Branch(training=training, commit=commit.name, step=commit.step, manifest=commit.manifest)


def _differences(
    trainer: Trainer, original: _Original, tolerance: float, fields: Mapping[str, Any]
) -> Iterator[StepDifference]:
    """The differences, in the order of the steps, up to the first one beyond the tolerance."""
    trainer.restore()
    store = Path(trainer.config.placement.parent)
    trainer.updates.repeat(store, trainer.step, trainer.updates.inherited, fields)
    for step in original.steps:
        trainer.train_step(False)
        for difference in _step_differences(trainer, original, step):
            yield difference
            if not _is_within(difference, tolerance):
                return


def _step_differences(trainer: Trainer, original: _Original, step: int) -> Iterator[StepDifference]:
    for name, expected in original.recorded.get(step, {}).items():
        actual = trainer.metrics[name]
        if actual != expected:
            apart = abs(actual - expected)
            yield StepDifference(f"the {name.replace('_', ' ')} of step {step}", apart, apart / abs(expected), step)
    if step in original.later:
        own_copies = _copies(trainer)
        _load(trainer, original.later[step])
        yield from _tensor_differences(own_copies, _copies(trainer), step, trainer.world)


def _load(trainer: Trainer, commit: Commit) -> None:
    """Go on from the state that this checkpoint of the original has."""
    assert trainer.config.branch is not None
    branch = _branch(trainer.config.branch.training, commit)
    config = dataclasses.replace(trainer.config, branch=branch)
    _, checkpoint = branching.parents(config, trainer.world, trainer.token)
    restore.load(trainer.engine, checkpoint, trainer.world)


def _copies(trainer: Trainer) -> dict[str, Tensor]:
    """Copies of this rank's part of every tensor of a checkpoint, by name, in host memory."""
    live = state.collect(trainer.engine, trainer.world.rank).tensors
    return {name: _local(value).detach().to("cpu", copy=True) for name, value in live.items()}


def _local(tensor: Any) -> Tensor:
    """This rank's part of a DTensor; any other tensor unchanged."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _tensor_differences(
    own_tensors: dict[str, Tensor], other_tensors: dict[str, Tensor], step: int, world: World
) -> list[StepDifference]:
    """The tensors that differ on any rank: first the model's, then the optimiser's."""
    local_differences = {
        name: _largest_difference(own_tensors[name], other)
        for name, other in other_tensors.items()
        if not _same_bits(own_tensors[name], other)
    }
    everywhere = world.all_gather(local_differences)
    by_name = {
        name: [rank_differences[name] for rank_differences in everywhere if name in rank_differences]
        for name in other_tensors
    }
    return [StepDifference(f"{name} after step {step}", *max(apart), step) for name, apart in by_name.items() if apart]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def _largest_difference(one: Tensor, other: Tensor) -> tuple[float, float]:
    """The largest absolute difference, and that divided by the largest value."""
    apart = float((one.double() - other.double()).abs().max())
    return apart, apart / max(float(other.double().abs().max()), sys.float_info.min)


def _is_within(difference: StepDifference, tolerance: float) -> bool:
    """Whether a difference is within the tolerance; False for a value that is not a number."""
    return difference.relative <= tolerance


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.trainer.replay", description="Repeat steps of a training and compare."
    )
    parser.add_argument("config", type=Path, help="the training's resolved configuration")
    parser.add_argument("--from", dest="first", type=int, required=True, help="the step of a checkpoint")
    parser.add_argument("--steps", type=int, required=True, help="how many steps to repeat")
    parser.add_argument("--set", dest="fields", type=parsing.value, default={}, help="fields set otherwise, as JSON")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="relative; default %(default)g")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps: found {options.steps}, expected 1 or more")
    try:
        config = configuration.load(options.config)
        with join(config) as world:
            finding = replay(config, world, options.first, options.steps, options.tolerance, options.fields)
    except ValueError as error:
        field = f"{error.field}: " if isinstance(error, Invalid) else ""
        console.warn(f"replay: {field}{error}")
        return UNUSABLE
    if world.is_rank_zero:
        text = json.dumps(dataclasses.asdict(finding)) if options.json else f"replay: {finding.text}"
        console.say(text)
    return finding.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
