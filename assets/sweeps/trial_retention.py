"""Retention of the trials' checkpoints after a sweep.

The newest checkpoints of the best trials are kept and copied to the backup, at whatever step the trial stopped, because
trials save to the durable tier only. All other checkpoints are released for retention to remove.
"""

import contextlib
import logging

from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.trials import BY, SweepTrials
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, TierUnavailable
from slipway.trainer.record import files

LOG = logging.getLogger(__name__)
MAX_KEPT = 2
"""The number of trials whose checkpoints are kept: the best one and the next one."""


def keep_the_best(sweep: SweepState, trials: SweepTrials, paths: Paths) -> None:
    """Copy the newest checkpoint of the best trials to the backup, and let retention remove the others.

    Failures are logged, and the next run of the sweep tries again.
    """
    best_trials = {*ranked(sweep)[:MAX_KEPT], *([sweep.best.number] if sweep.best else [])}
    for number in sweep.trials:
        store = trials.store(number)
        if not (store.folder / files.SPECIFICATION).exists():
            continue
        if number in best_trials:
            _copy_newest(store, paths)
        else:
            with contextlib.suppress(OSError):  # leftover checkpoints only take space
                store.let_checkpoints_go(BY, f"trial {number} is not among the best {MAX_KEPT} of {sweep.plan.sweep}")


def ranked(sweep: SweepState) -> list[int]:
    """The trials with a value, the best first: more steps before lower values, which are comparable only at one
    step."""
    merits = [
        (-sweep.reached(trial), trial.value, trial.number) for trial in sweep.trials.values() if trial.value is not None
    ]
    return [number for _, _, number in sorted(merits)]


def _copy_newest(store: TrainingStore, paths: Paths) -> None:
    """Copy the newest checkpoint of a trial to the backup, if there is one."""
    try:
        commit = max(store.read().commits_on(DURABLE), key=lambda candidate: candidate.step, default=None)
        if commit is None or not paths.backup or commit in store.read().commits_on(BACKUP):
            return
        source = paths.durable / commit.folder
        backup = copying.tier_at(paths.backup)
        replicas.record(store.folder, commit, BACKUP, copying.replicate(source, backup, commit.folder, commit.manifest))
    except (TierUnavailable, DamagedCheckpoint, OSError) as error:
        LOG.warning(f"trial {store.id}: its checkpoint is not on the backup: {error}")
