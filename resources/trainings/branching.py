"""Branching: start a new training from a checkpoint of another one, with its full state; and replay steps.

A branch has the parent's identity config at that step, including changes that the parent accepted while it ran, plus
its own changes. Its first incarnation restores the parent's checkpoint, which is held until the branch has a checkpoint
of its own. A replay repeats steps and keeps nothing: separate processes run `slipway.trainer.replay`, which compares
their results with those of the parent.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from slipway.resources.trainings import job
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.metric_series import read_sample
from slipway.resources.trainings.records import BranchRecord, RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import atomic, scratch
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.retention import holds
from slipway.trainer.config import changing
from slipway.trainer.config.resolved import NUMBERS
from slipway.trainer.elastic import skipped_batches
from slipway.trainer.record import changes as recorded
from slipway.trainer.record import files, removals
from slipway.trainer.record.fence import Commit

ABANDONED_DAYS = 7.0
"""How long a branch that ended without any checkpoint still holds its parent's checkpoint."""
NEAREST = 4
"""How many of the nearest checkpoints a message names if the requested one does not exist."""
WITHIN_TOLERANCE = 3
"""The exit code of `slipway.trainer.replay` if steps differ by less than the tolerance; 0 means equal steps."""


def branch(
    root: Trainings,
    parent: TrainingStore,
    commit: Commit,
    changes: Mapping[str, Any],
    run_policy: RunPolicy,
    by: str,
    name: str = "",
    revision: str = "",
    id: str = "",
) -> TrainingStore:
    """Propose a training that continues the parent's commit with these changes. Idempotent.

    `run_policy` is the branch's own; `changes` also names its changes to the policy. `name` distinguishes branches that
    are otherwise equal. Only trials pass an `id`; the id of any other branch follows from its content. The branch does
    not start yet (`Trainings.start`). Raises ValueError, before anything is written, for changes that are impossible
    with the full state.
    """
    specification = parent.specification()
    numbers = numbers_at(parent, specification, commit.step)
    where = os.path.relpath(parent.folder, root.root)
    branch_record = BranchRecord(parent.id, where, commit.name, commit.step, commit.manifest, dict(changes), revision)
    child_specification = continued(specification, numbers, branch_record, name)
    origin = lineage(branch_record, numbers, run_policy, revision_of(parent, commit.token.incarnation))
    child = root.store(id or child_specification.id)
    holds.hold_for(parent.folder, commit.name, child.folder)
    try:
        holds.require_kept(parent.folder, [commit.name])
    except holds.NotKept as error:
        raise ValueError(f"{parent.id}@{commit.step}: the checkpoint {error}") from None
    skipped_batches.copy(parent.folder, child.folder, commit.step)
    own = {**run_policy.origin, **origin} if id else origin
    return root.propose(child_specification, dataclasses.replace(run_policy, init="", origin=own), child.id, by)


def let_go_if_abandoned(root: Trainings, facts: TrainingFacts, now: float) -> bool:
    """Release the hold of a branch without checkpoints that has been stopped for `ABANDONED_DAYS`.

    Returns whether a hold was released. Raises OSError.
    """
    branch = facts.specification.branch
    if branch is None or facts.commits or facts.unfinished or facts.running or facts.desired is None:
        return False
    since = max(facts.desired.at, facts.ended.at if facts.ended else 0.0)
    if now - since < ABANDONED_DAYS * DAY:
        return False
    return holds.let_go(root.root / branch.store, branch.commit, facts.id)


def hold_again(root: Trainings, store: TrainingStore) -> None:
    """Hold the parent's checkpoint again for a branch that restarts without a checkpoint of its own.

    Raises ValueError if the checkpoint was removed meanwhile, and OSError.
    """
    branch = store.specification().branch
    if branch is None or store.commits():
        return
    parent = root.root / branch.store
    holds.hold_for(parent, branch.commit, store.folder)
    try:
        holds.require_kept(parent, [branch.commit])
    except holds.NotKept:
        raise ValueError(
            f"{store.id}: the checkpoint {branch.training}@{branch.step} from which it starts was removed, since the "
            f"branch had been stopped for {ABANDONED_DAYS:.0f} days; branch from another checkpoint"
        ) from None


def continued(parent: Specification, numbers: Mapping[str, Any], branch: BranchRecord, name: str) -> Specification:
    """The specification of a branch of a training with this identity config. Raises ValueError with the field."""
    if parent.script:
        raise ValueError(
            f"training {branch.training}: found a script, expected a built-in model: only the script knows its state"
        )
    try:
        changing.check_continues(branch.changed, numbers, branch.step)
        own = {field: value for field, value in branch.changed.items() if field.split(".")[0] in NUMBERS}
        sections = {
            section: value for section, value in changing.with_fields(numbers, own).items() if section != "init"
        }
    except Invalid as fault:
        known = fault.field in branch.changed and str(fault).startswith("expected ")
        value_text = f"found {branch.changed[fault.field]!r}, " if known else ""
        raise ValueError(f"{fault.field}: {value_text}{fault}") from None
    steps = sections["run"]["steps"]
    if steps <= branch.step:
        raise ValueError(f"run.steps: found {steps}, expected more than {branch.step}, the step of the checkpoint")
    return Specification(parent.recipe, sections, parent.snapshot, parent.tokenizer, name, branch)


def numbers_at(store: TrainingStore, specification: Specification, step: int) -> dict[str, Any]:
    """The identity config of a training at a checkpoint: its specification with the changes up to that step."""
    values = recorded.values(recorded.held_at(store.folder, step))
    own = {field: value for field, value in values.items() if field.split(".")[0] in NUMBERS}
    return changing.with_fields(specification.identity_config, own)


def lineage(branch: BranchRecord, numbers: Mapping[str, Any], run_policy: RunPolicy, revision: str) -> dict[str, Any]:
    """The origin of a branch, for people: the checkpoint, and for each changed field the old and the new value."""
    before = {**run_policy.operation, **numbers}
    changed = {name: [changing.value_of(before, name), value] for name, value in branch.changed.items()}
    if revision and revision != branch.revision:
        changed["revision"] = [revision, branch.revision]
    return {"branch": f"{branch.training}@{branch.step}", "manifest": branch.manifest, "changed": changed}


def commit_at(store: TrainingStore, step: int | None) -> Commit:
    """The newest checkpoint, or that of `step`. Raises a ValueError that names the nearest steps."""
    commits = {commit.step: commit for commit in store.commits()}
    if not commits:
        raise ValueError(f"{store.id}: found no checkpoint, expected one to start from")
    if step is None:
        return commits[max(commits)]
    if step not in commits:
        near = ", ".join(map(str, nearest(commits, step)))
        missing = _gone(store, step) or "no checkpoint of this step"
        raise ValueError(f"{store.id}@{step}: found {missing}, expected one of the nearest: {near}")
    return commits[step]


def nearest(steps: Mapping[int, Any] | Sequence[int], step: int) -> list[int]:
    """The `NEAREST` steps that are closest to `step`, ascending."""
    return sorted(sorted(steps, key=lambda candidate: abs(candidate - step))[:NEAREST])


def revision_of(store: TrainingStore, incarnation: int) -> str:
    """The revision of the code that an incarnation ran, or "" if it is not recorded."""
    started = [event for event in read_sample(store.folder).events if event["event"] == "started"]
    revisions = [
        str(event["revision"]) for event in started if event.get("incarnation") == incarnation and "revision" in event
    ]
    return revisions[-1] if revisions else ""


def replay(
    store: TrainingStore,
    paths: Paths,
    first: int,
    steps: int,
    ranks: int | None = None,
    tolerance: float | None = None,
    changes: Mapping[str, Any] | None = None,
    as_json: bool = False,
    output: IO[str] | None = None,
) -> int:
    """Repeat `steps` steps from the checkpoint of step `first`; returns the exit code of `slipway.trainer.replay`.
    Output and errors go to `output`, or to those of this process if it is None. `ranks` defaults to the last number of
    ranks. The shards are staged into a scratch folder, so that no node's NVMe changes. `changes` overrides fields.

    Raises ValueError for a training by a script, for a step without a checkpoint, and if the retention is removing a
    checkpoint that the replay needs.
    """
    facts = store.read()
    if facts.specification.script:
        raise ValueError(f"training {store.id}: found a script, expected a built-in model: only its steps are known")
    commit_at(store, first)
    with scratch.folder("slipway-replay") as scratch_folder:
        config = scratch_folder / "config.json"
        apart = Paths(paths.durable, str(scratch_folder / "nvme"), paths.backup)
        config.write_bytes(atomic.readable_json(job.configuration(facts, apart)))
        ranks = ranks or _ranks(facts)
        python = [sys.executable, "-P", "-m"]
        agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--no-python", *python]
        options = ["--from", str(first), "--steps", str(steps)]
        if tolerance is not None:
            options += ["--tolerance", str(tolerance)]
        if changes:
            options += ["--set", json.dumps(changes)]
        if as_json:
            options.append("--json")
        if ranks > 1:
            python += agent
        command = [*python, "slipway.trainer.replay", str(config), *options]
        read = [commit.name for commit in facts.commits if first <= commit.step <= first + steps]
        with holds.holding(store.folder, read, "a replay", f"it does steps {first + 1} to {first + steps} again"):
            holds.require_kept(store.folder, read)
            return subprocess.call(command, stdout=output, stderr=output and subprocess.STDOUT)


def _gone(store: TrainingStore, step: int) -> str:
    """What happened to the checkpoint of a step that is no longer valid; "" if there was none."""
    descriptions = {
        files.SET_ASIDE: "a damaged checkpoint, which was set aside",
        files.PRUNED: "a checkpoint that the retention removed from all tiers",
    }
    for where, description in descriptions.items():
        if any(int(name.split(".")[0]) == step for name in removals.commits(store.folder, where)):
            return description
    return ""


def _ranks(facts: TrainingFacts) -> int:
    """The number of ranks of the training's last start."""
    worlds = [int(event["world"]) for event in read_sample(facts.folder).events if event["event"] == "started"]
    return worlds[-1] if worlds else 1
