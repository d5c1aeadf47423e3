"""Measures checkpoints: small ones in a helper process, large ones in jobs with as many ranks as they need.

Both run `slipway.trainer.evaluate`, with the same result. A job outlives this process, and the next request for the
same measurement adopts it. The identity of a job consists only of the checkpoint and its evaluation text.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterExecutionInterruptedError, DagsterRunStatus

from slipway.resources import idle_timeout
from slipway.resources.compute.protocol import Compute
from slipway.resources.short_jobs import size
from slipway.resources.short_jobs.attempts import ShortJob
from slipway.resources.short_jobs.running import Say, ShortJobFailed
from slipway.resources.short_jobs.size import CheckpointSize
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.job import with_fabric
from slipway.resources.trainings.records import RunPolicy
from slipway.trainer.base import codec, scratch
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.base.paths import CODE
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier, NodesTier
from slipway.trainer.checkpoint.tiers.tier import TierSource, TierUnavailable
from slipway.trainer.config import evaluating, resolved
from slipway.trainer.config.evaluating import RankPlaces
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.plan import room
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import FORMAT, Score, Scores

SPLIT = "validation"
NO_OPTIONS: Mapping[str, Any] = {}
"""The options of a measurement of the split as a whole."""


@dataclass(frozen=True)
class MeasuredSource:
    """A tier from which to restore a checkpoint before it is measured."""

    locations: Sequence[str]
    """The folder or URL of the tier; several for the NVMe folders of nodes."""

    def tier(self) -> TierSource:
        if len(self.locations) > 1:
            return NodesTier([Path(folder) for folder in self.locations])
        return copying.tier_at(self.locations[0])


@dataclass(frozen=True)
class MeasurementJob:
    """One checkpoint to measure in a job."""

    snapshot: str
    commit: Commit
    policy: RunPolicy
    sized: CheckpointSize
    cause: str = ""
    """Distinguishes measurements of the same checkpoint."""
    source: MeasuredSource | None = None
    """The tier from which the job restores the checkpoint; None if it is on the durable tier."""
    options: Mapping[str, Any] = field(default_factory=lambda: NO_OPTIONS)


@dataclass(frozen=True)
class Measuring:
    """Measures checkpoints on the validation split of a snapshot."""

    tiers: Tiers
    compute: Compute
    say: Say = field(default=lambda _: None)
    """Called with the progress of a job, in words."""
    cancelled: Callable[[], bool] = field(default=lambda: False)
    """Whether the request was cancelled; called when this process is interrupted."""

    def measure(self, snapshot: str, commits: Sequence[Commit], policy: RunPolicy, cause: str = "") -> Iterator[Score]:
        """Measure commits on the durable tier: first all small ones in one process, then each large one in a job.

        A different `cause` is a different measurement. Raises dg.Failure, with the log's place, if a job fails.
        """
        alone = [commit for commit in commits if self._rank_places(commit, policy) is None]
        if alone:
            yield from self._in_process(snapshot, alone)
        for commit in commits:
            if commit not in alone:
                yield self._by_job(MeasurementJob(snapshot, commit, policy, self._sized(commit), cause))

    def measure_each(self, snapshot: str, commit: Commit, policy: RunPolicy, calibrated: int | None = None) -> Score:
        """Measure a commit on the durable tier on every document (or sample) of a split separately.

        The calibration uses the first `calibrated` of them, or all for None. Raises dg.Failure, with the log's place,
        if a job fails.
        """
        options: dict[str, Any] = {"each": True}
        if calibrated is not None:
            options["calibrated"] = calibrated
        if self._rank_places(commit, policy) is None:
            [score] = self._in_process(snapshot, [commit], options=options)
            return score
        return self._by_job(MeasurementJob(snapshot, commit, policy, self._sized(commit), options=options))

    def measure_restored(
        self, snapshot: str, commit: Commit, policy: RunPolicy, source: MeasuredSource, cause: str
    ) -> Score:
        """Measure a copy restored from a tier, every byte of which is verified.

        Raises dg.Failure, DamagedCheckpoint and TierUnavailable.
        """
        sized = size.of_checkpoint(source.tier(), commit)
        if self._rank_places_for(sized, commit, policy) is not None:
            return self._by_job(MeasurementJob(snapshot, commit, policy, sized, cause, source))
        with scratch.folder("slipway-restore-drill") as folder:
            copying.fetch(source.tier(), commit.folder, commit.manifest, folder / commit.folder)
            [score] = self._in_process(snapshot, [commit], folder)
        return score

    def _rank_places(self, commit: Commit, policy: RunPolicy) -> RankPlaces | None:
        """The ranks for a commit's job; None to use one process, which also reports the fault of a damaged commit."""
        try:
            sized = self._sized(commit)
        except (DamagedCheckpoint, ValueError):
            return None
        except TierUnavailable as error:
            raise dg.Failure(f"checkpoint {commit.name}: {error}") from None
        return self._rank_places_for(sized, commit, policy)

    def _rank_places_for(self, sized: CheckpointSize, commit: Commit, policy: RunPolicy) -> RankPlaces | None:
        profile = self.compute.hardware
        measured_room = size.in_this_place(room.of_profile(profile) if profile else None, self.compute.sees_nodes)
        try:
            return size.choose_ranks(
                sized, evaluation_of(policy), policy.max_nodes, policy.ranks_per_node, measured_room
            )
        except Invalid as fault:
            raise dg.Failure(f"checkpoint {commit.name}: field {fault.field}: {fault}") from None
        except ValueError as error:
            raise dg.Failure(f"checkpoint {commit.name}: {error}") from None

    def _sized(self, commit: Commit) -> CheckpointSize:
        return size.of_checkpoint(FolderTier(self.tiers.durable_path), commit)

    def _by_job(self, measurement: MeasurementJob) -> Score:
        """The score of one checkpoint, from a job."""
        jobs = self.compute.short_jobs(self.tiers)
        job = self._job(measurement)
        try:
            result = jobs.run(job, self.say)
        except ShortJobFailed as error:
            raise dg.Failure(str(error)) from None
        except DagsterExecutionInterruptedError:
            if self.cancelled():
                jobs.stop(job)
            raise
        [score] = codec.build(Scores, result).scores
        if score.damaged:
            jobs.forget(job)  # a repaired checkpoint must be measured again
        return score

    def _job(self, measurement: MeasurementJob) -> ShortJob:
        commit = measurement.commit
        policy = measurement.policy
        rank_places = self._rank_places_for(measurement.sized, commit, policy)
        assert rank_places is not None
        profile = self.compute.hardware
        request = self._request(measurement.snapshot, [commit], options=measurement.options)
        config = evaluating.configuration(measurement.sized.settings, evaluation_of(policy), rank_places.ranks)
        request["config"] = with_fabric(resolved.dump(config), profile.fabric if profile else "")
        if measurement.source is not None:
            request["source"] = list(measurement.source.locations)
        about: dict[str, Any] = {"folder": commit.folder, "manifest": commit.manifest}
        about |= {"snapshot": measurement.snapshot, "split": SPLIT, **measurement.options}
        return ShortJob(
            kind="evaluate",
            about=f"checkpoint {commit.folder}",
            identity={**about, "cause": measurement.cause, "source": request.get("source", [])},
            command=("python", "-P", "-m", "slipway.trainer.evaluate"),
            request=request,
            nodes=rank_places.nodes,
            ranks_per_node=rank_places.ranks_per_node,
            kubernetes=size.with_gpus(policy.kubernetes, rank_places.ranks_per_node),
        )

    def _request(
        self,
        snapshot: str,
        commits: Sequence[Commit],
        root: Path | None = None,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> dict[str, Any]:
        entries = [{"name": c.name, "folder": c.folder, "manifest": c.manifest} for c in commits]
        return {
            "tier": str(self.tiers.durable_path),
            "durable": str(root or self.tiers.durable_path),
            "snapshot": snapshot,
            "split": SPLIT,
            "checkpoints": entries,
            **options,
        }

    def _in_process(
        self,
        snapshot: str,
        commits: Sequence[Commit],
        root: Path | None = None,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[Score]:
        """Run the evaluator over commits, in one process. Their folders are in `root`, by default the durable tier.

        Raises dg.Failure with the end of its output.
        """
        with scratch.folder("slipway-evaluation") as folder:
            request = folder / "request.json"
            output = folder / "scores.json"
            codec.replace(request, {**self._request(snapshot, commits, root, options), "output": str(output)})
            command = [sys.executable, "-P", "-m", "slipway.trainer.evaluate", str(request)]
            try:
                done = idle_timeout.run(command, CODE)
            except idle_timeout.Idle as idle:
                raise dg.Failure(f"the evaluator hung: {idle}; the checkpoints are evaluated again") from None
            if done.code != 0:
                raise dg.Failure(f"the evaluator ended with exit code {done.code}: {done.error[-2000:]}")
            return list(codec.read(output, Scores, FORMAT).scores)


def evaluation_of(policy: RunPolicy) -> Evaluation:
    """The section `evaluation` of a training's run policy; the defaults if an earlier version wrote the policy."""
    return codec.build(Evaluation, policy.operation.get("evaluation", {}), "evaluation")


def in_a_run(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, tiers: Tiers, compute: Compute
) -> Measuring:
    """Measuring for a Dagster run: its log shows the jobs' progress, and cancelling it stops them.

    A run that is only interrupted (by an eviction of its pod) leaves its job to the next run, which adopts it.
    """

    def cancelled() -> bool:
        dagster_run = context.instance.get_run_by_id(context.run.run_id)
        return dagster_run is not None and dagster_run.status is DagsterRunStatus.CANCELING

    return Measuring(tiers, compute, context.log.info, cancelled)
