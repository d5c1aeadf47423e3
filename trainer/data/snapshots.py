"""Snapshots of all kinds: manifests for code that moves, stores or compares shards of any content."""

from pathlib import Path

from slipway.trainer.data import images, mixtures, shards

Snapshot = shards.TextSnapshot | images.ImageSnapshot
"""A mixture of texts is a snapshot of texts too (`slipway.trainer.data.mixtures`)."""


def read(tier: Path, sha256: str) -> Snapshot:
    """Read and verify a manifest. Raises ValueError when it is missing, damaged or of an unknown format."""
    return parse(*shards.stored_manifest(tier, sha256))


def parse(data: bytes, sha256: str, where: str) -> Snapshot:
    """The snapshot of a manifest's bytes. Raises ValueError, beginning with `where`, as `read`."""
    version, _ = shards.manifest_value(data, sha256, where)
    if version == images.FORMAT:
        return images.parse_manifest(data, sha256, where)
    if version == shards.FORMAT:
        return shards.parse_manifest(data, sha256, where)
    if version == mixtures.FORMAT:
        return mixtures.parse_manifest(data, sha256, where)
    known = f"{shards.FORMAT!r}, {images.FORMAT!r} or {mixtures.FORMAT!r}"
    raise ValueError(f"{where}: format: found {version!r}, expected {known}")
