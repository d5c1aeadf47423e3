"""Late copies: what the backup did not take while a training ran, copied once the training is over.

While it runs, the ranks' side tries a copy again until the tier takes it or a newer one is due, and at the end once
more. An object store that is away for longer has none of the last steps then, and nobody is left to try.
"""

from pathlib import Path

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.checkpoint.tiers import copying, faults, replicas
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, Tier
from slipway.trainer.record.fence import Commit


def owed(facts: TrainingFacts) -> Commit | None:
    """The newest checkpoint of a training that is over, where the backup took none since it last failed to take one.

    Raises OSError.
    """
    if not facts.over or facts.let_go:
        return None
    newest = max(facts.commits_on(DURABLE), key=lambda commit: commit.step, default=None)
    if newest is None or newest in facts.commits_on(BACKUP):
        return None
    # The end of a run does not wait until a try of its own last checkpoint has failed too.
    held = max((commit.step for commit in facts.commits_on(BACKUP)), default=0)
    failed = any(
        each.tier == BACKUP and each.kind == faults.NOT_COPIED and int(each.commit.partition(".")[0]) > held
        for each in faults.noted(facts.folder)
    )
    return newest if failed and newest.name not in replicas.withdrawn_copies(facts.folder, BACKUP) else None


def deliver(store: Path, commit: Commit, durable: Path, backup: Tier) -> int:
    """Copy a commit of the training in the folder `store` to the backup, and put that on record; returns its bytes.

    Raises DamagedCheckpoint, TierUnavailable and OSError; none leaves a copy on record.
    """
    size = copying.replicate(durable / commit.folder, backup, commit.folder, commit.manifest)
    replicas.record(store, commit, BACKUP, size)
    return size
