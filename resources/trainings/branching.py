"""Branching: a new training that continues a checkpoint of another one, with its full state, and a replay of steps.

It has the parent's numbers as they were at that step, with the changes that the parent took over while it ran, and what
is changed for it. Its first incarnation restores the parent's checkpoint, which is held until it has one of its own. A
replay is a branch that keeps nothing: processes of their own run `slipway.trainer.replay`, and what they did is
compared with what the parent did.
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
"""A branch that never saved anything, and was stopped or failed for good, holds its parent's checkpoint for so long."""
NEAREST = 4
"""So many steps are named where there is no checkpoint of the one that was asked for."""
WITHIN_TOLERANCE = 3
"""The exit code of `slipway.trainer.replay` for steps that differ by less than the tolerance; 0 is for equal ones."""


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
    """Propose the training that continues the parent's commit with these changes; asking twice finds the same one.

    `run_policy` is its own; it may have changes too, which are then named in `changes`. `name` distinguishes branches
    that are otherwise the same. `id` is given for a trial alone: what else continues has the id of what it is. It is
    not wanted yet (`Trainings.start`). Raises ValueError, before anything is written, for changes that a continuation
    with the full state cannot make.
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
    """End the hold of a branch that never saved anything and that nobody has wanted for `ABANDONED_DAYS`.

    Whether a hold ended. Raises OSError.
    """
    branch = facts.specification.branch
    if branch is None or facts.commits or facts.unfinished or facts.running or facts.desired is None:
        return False
    since = max(facts.desired.at, facts.ended.at if facts.ended else 0.0)
    if now - since < ABANDONED_DAYS * DAY:
        return False
    return holds.let_go(root.root / branch.store, branch.commit, facts.id)


def hold_again(root: Trainings, store: TrainingStore) -> None:
    """Hold what a branch begins from, where it is wanted again and has no checkpoint of its own.

    Raises ValueError when that was removed meanwhile, and OSError.
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
            f"{store.id}: the checkpoint {branch.training}@{branch.step} that it begins from was removed, as nobody "
            f"had wanted it for {ABANDONED_DAYS:.0f} days; branch from another one"
        ) from None


def continued(parent: Specification, numbers: Mapping[str, Any], branch: BranchRecord, name: str) -> Specification:
    """The specification of a training that continues one with these numbers. Raises ValueError with the field."""
    if parent.script:
        raise ValueError(
            f"training {branch.training}: found a script's, expected one of our models: only its script knows its state"
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
    if (steps := sections["run"]["steps"]) <= branch.step:
        raise ValueError(f"run.steps: found {steps}, expected more than {branch.step}, where it begins")
    return Specification(parent.recipe, sections, parent.snapshot, parent.tokenizer, name, branch)


def numbers_at(store: TrainingStore, specification: Specification, step: int) -> dict[str, Any]:
    """The numbers of a training at a checkpoint: those of its specification, as it had changed them by then."""
    values = recorded.values(recorded.held_at(store.folder, step))
    own = {field: value for field, value in values.items() if field.split(".")[0] in NUMBERS}
    return changing.with_fields(specification.identity_config, own)


def lineage(branch: BranchRecord, numbers: Mapping[str, Any], run_policy: RunPolicy, revision: str) -> dict[str, Any]:
    """What a person is shown of where a branch comes from: the checkpoint, and by field its value before and now."""
    before = {**run_policy.operation, **numbers}
    changed = {name: [changing.value_of(before, name), value] for name, value in branch.changed.items()}
    if revision and revision != branch.revision:
        changed["revision"] = [revision, branch.revision]
    return {"branch": f"{branch.training}@{branch.step}", "manifest": branch.manifest, "changed": changed}


def commit_at(store: TrainingStore, step: int | None) -> Commit:
    """The newest checkpoint, or the one of this step. Raises ValueError that names the nearest steps."""
    commits = {commit.step: commit for commit in store.commits()}
    if not commits:
        raise ValueError(f"{store.id}: found no checkpoint, expected one to begin from")
    if step is None:
        return commits[max(commits)]
    if step not in commits:
        near = ", ".join(map(str, nearest(commits, step)))
        missing = _gone(store, step) or "no checkpoint of this step"
        raise ValueError(f"{store.id}@{step}: found {missing}, expected one of the nearest: {near}")
    return commits[step]


def nearest(steps: Mapping[int, Any] | Sequence[int], step: int) -> list[int]:
    """Some of these steps, the nearest to one, in their order."""
    return sorted(sorted(steps, key=lambda candidate: abs(candidate - step))[:NEAREST])


def revision_of(store: TrainingStore, incarnation: int) -> str:
    """The revision of the code that an incarnation ran, empty where it is not on record."""
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
    """Do `steps` steps from the checkpoint of step `first` again; the exit code of `slipway.trainer.replay`, which
    prints.

    It prints into `output`, None for where this process does, what is wrong too where it is given.

    By default with as many ranks as trained last. The shards are staged into a scratch folder, so that no node's NVMe
    is touched. `changes` are fields that are set otherwise. Raises ValueError for a training whose loop is a script's,
    for a step without a checkpoint, with the nearest ones, and where retention removes one that is read.
    """
    facts = store.read()
    if facts.specification.script:
        raise ValueError(f"training {store.id}: found a script's, expected one of our models: only its steps are known")
    commit_at(store, first)
    with scratch.folder("slipway-replay") as scratch_folder:
        config = scratch_folder / "config.json"
        apart = Paths(paths.durable, str(scratch_folder / "nvme"), paths.backup)
        config.write_bytes(atomic.readable_json(job.configuration(facts, apart)))
        ranks = ranks or _ranks(facts)
        python = [sys.executable, "-P", "-m"]
        agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--no-python", *python]
        chosen = ["--from", str(first), "--steps", str(steps)]
        chosen += [] if tolerance is None else ["--tolerance", str(tolerance)]
        chosen += ["--set", json.dumps(changes)] if changes else []
        chosen += ["--json"] if as_json else []
        command = [*python, *(agent if ranks > 1 else []), "slipway.trainer.replay", str(config), *chosen]
        read = [commit.name for commit in facts.commits if first <= commit.step <= first + steps]
        with holds.holding(store.folder, read, "a replay", f"it does steps {first + 1} to {first + steps} again"):
            holds.require_kept(store.folder, read)
            return subprocess.call(command, stdout=output, stderr=output and subprocess.STDOUT)


def _gone(store: TrainingStore, step: int) -> str:
    """What became of the checkpoint of a step that does not count any more; empty where there was none."""
    for where, description in ((files.SET_ASIDE, "a damaged checkpoint, which was set aside"),
                         (files.PRUNED, "a checkpoint that was removed, as no tier keeps it any more")):  # fmt: skip
        if any(int(name.split(".")[0]) == step for name in removals.commits(store.folder, where)):
            return description
    return ""


def _ranks(facts: TrainingFacts) -> int:
    """With how many ranks the training was started last."""
    worlds = [int(event["world"]) for event in read_sample(facts.folder).events if event["event"] == "started"]
    return worlds[-1] if worlds else 1
