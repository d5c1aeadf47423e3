"""Verification: reads every byte of a checkpoint on its tier and compares it with what was committed."""

from collections.abc import Callable
from dataclasses import dataclass

from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.verification import verified_chunks, verified_manifest
from slipway.trainer.checkpoint.tiers.tier import Tier
from slipway.trainer.record.fence import Commit


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """What was read of a checkpoint that is whole."""

    files: int
    bytes: int


def verify(tier: Tier, commit: Commit, report: Callable[[int, int], None]) -> VerifiedCheckpoint:
    """Read a checkpoint on a tier; `report` is called with the bytes read so far and those there are.

    Raises DamagedCheckpoint, with the first file that is not what was committed, and TierUnavailable. It sets nothing
    aside: the process that needs the checkpoint does.
    """
    if not tier.holds(commit.folder):
        raise DamagedCheckpoint(f"{commit.folder}: it is not on this tier")
    data = b"".join(tier.read(commit.folder, MANIFEST))
    manifest = verified_manifest(data, commit.manifest, f"{commit.folder}/{MANIFEST}")
    done = 0
    for name, expected in manifest.files.items():
        for chunk in verified_chunks(tier.read(commit.folder, name), expected, f"{commit.folder}/{name}"):
            done += len(chunk)
            report(done, manifest.bytes)
    return VerifiedCheckpoint(len(manifest.files), done)
