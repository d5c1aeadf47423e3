"""Exports a checkpoint in this process, or in a job with one rank if the model is large and jobs can reach the target.

Both write one tensor after the other, and keep only one in memory.
"""

from dataclasses import dataclass
from pathlib import Path

from slipway.assets.measurement import evaluation_of
from slipway.resources.compute.protocol import Compute
from slipway.resources.short_jobs import size
from slipway.resources.short_jobs.attempts import ShortJob
from slipway.resources.short_jobs.running import Say, ShortJobFailed
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.records import RunPolicy
from slipway.trainer.base import digest, regular_file
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.record.fence import Commit


@dataclass(frozen=True)
class Exporting:
    """Exports checkpoints from the durable tier."""

    tiers: Tiers
    compute: Compute
    say: Say

    def is_for_a_job(self, commit: Commit, policy: RunPolicy, target: Path) -> bool:
        """Whether the weights exceed the recipe's limit for one process, and jobs can reach the target's folder.

        Raises DamagedCheckpoint, TierUnavailable, and ValueError for a checkpoint of another layout.
        """
        sized = size.of_checkpoint(FolderTier(self.tiers.durable_path), commit)
        large = sized.weights > evaluation_of(policy).process_gigabytes * 1e9
        durable = self.tiers.durable_path.resolve()
        return large and (self.compute.sees_nodes or target.resolve().is_relative_to(durable))

    def write(
        self, commit: Commit, policy: RunPolicy, target: Path, tokenizer: Path | None, precision: str, file_bytes: int
    ) -> str:
        """Write the new folder `target` in this process or in a job; returns the SHA-256 of its manifest.

        Raises as `is_for_a_job`, `export` and `slipway.trainer.start.export.export` do.
        """
        if self.is_for_a_job(commit, policy, target):
            return self.export(commit, policy, target, tokenizer, precision, file_bytes)
        from slipway.trainer.start import export  # imports torch, which a job's submission does not need

        folder = self.tiers.durable_path / commit.folder
        return export.export(folder, target, commit.manifest, tokenizer, precision, file_bytes)

    def export(
        self, commit: Commit, policy: RunPolicy, target: Path, tokenizer: Path | None, precision: str, file_bytes: int
    ) -> str:
        """Write the new folder `target` in a job; returns the SHA-256 of its manifest.

        Raises ValueError for a target that exists, and, with the place of its log, for a job that fails.
        """
        target = target.resolve()
        if target.exists():
            raise ValueError(f"{target}: the folder exists already, expected a new one: choose another name")
        tokenizer_path = tokenizer.resolve() if tokenizer else None
        job = ShortJob(
            kind="export",
            about=f"checkpoint {commit.folder}",
            identity={
                "folder": commit.folder,
                "manifest": commit.manifest,
                "target": str(target),
                "tokenizer": digest.sha256(regular_file.read(tokenizer_path)) if tokenizer_path else "",
                "precision": precision,
                "file_bytes": file_bytes,
            },
            command=("python", "-P", "-m", "slipway.trainer.export"),
            request={
                "checkpoint": str(self.tiers.durable_path / commit.folder),
                "manifest": commit.manifest,
                "target": str(target),
                "tokenizer": str(tokenizer_path) if tokenizer_path else "",
                "precision": precision,
                "file_bytes": file_bytes,
            },
            kubernetes=size.with_gpus(policy.kubernetes, 1),
        )
        jobs = self.compute.short_jobs(self.tiers)
        try:
            manifest = str(jobs.run(job, self.say)["manifest"])
        except ShortJobFailed as error:
            raise ValueError(str(error)) from None
        jobs.forget(job)  # after a person removes the folder, the same export must run again
        if not target.exists():  # somebody removed the folder, and the job's result is from before that
            return self.export(commit, policy, target, tokenizer, precision, file_bytes)
        return manifest
