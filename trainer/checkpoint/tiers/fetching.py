"""Fetching: one file of a checkpoint from another node or a folder, verified on its way, to this node's disk."""

import io
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from slipway.trainer.base import atomic, verify
from slipway.trainer.checkpoint.disk.manifest import CheckpointFile
from slipway.trainer.checkpoint.disk.verification import verified_chunks
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.objects import origin
from slipway.trainer.objects.origin import Missing, Origin, Unreachable


def file(source: Origin, names: Sequence[str], expected: CheckpointFile, into: Path) -> None:
    """Bring a file to `into`, where it is whole or not at all. It has one of `names` at the source, tried in order.

    Raises DamagedCheckpoint for other bytes than expected, TierUnavailable when the source does not give it or stalls,
    and OSError where `into` cannot be written.
    """
    keep(verified_chunks(_blocks(source, names), expected, f"{source}/{names[0]}"), into)


def keep(chunks: Iterator[bytes], into: Path) -> None:
    """Put a file at `into`, in place of what was there; an error of `chunks` leaves nothing. Raises OSError."""
    temporary = into.with_name(f".{into.name}.{secrets.token_hex(4)}.tmp")
    try:
        atomic.write(temporary, chunks)
        temporary.replace(into)
    finally:
        temporary.unlink(missing_ok=True)


def small(source: Origin, name: str) -> bytes:
    """The bytes of a small file, not verified. Raises TierUnavailable, also for one that has no end."""
    try:
        with source.open(name) as stream:
            return origin.small(stream, f"{source}: {name}")
    except (Missing, Unreachable) as error:
        raise TierUnavailable(str(error)) from None


def _blocks(source: Origin, names: Sequence[str]) -> Iterator[bytes]:
    try:
        with io.BufferedReader(cast(io.RawIOBase, _opened(source, names)), 1 << 20) as stream:
            while block := stream.read(verify.BLOCK):
                yield block
    except (Missing, Unreachable) as error:
        raise TierUnavailable(str(error)) from None


def _opened(source: Origin, names: Sequence[str]) -> object:
    """The stream of the first of `names` that is there. Raises Missing and Unreachable."""
    *others, last = names
    for name in others:
        try:
            return source.open(name)
        except Missing:
            continue
    return source.open(last)
