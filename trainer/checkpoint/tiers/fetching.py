"""Fetching: copies one file of a checkpoint from another node or a folder to this node's disk, verified on its way."""

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
    """Copy a file to `into`, where it appears whole or not at all. `names`: its possible names at the source, in order.

    Raises DamagedCheckpoint for other bytes than expected, TierUnavailable if the source does not give the file or
    stalls, and OSError if `into` cannot be written.
    """
    keep(verified_chunks(_blocks(source, names), expected, f"{source}/{names[0]}"), into)


def keep(chunks: Iterator[bytes], into: Path) -> None:
    """Write a file to `into` and replace an older one; an error in `chunks` leaves no file. Raises OSError."""
    temporary = into.with_name(f".{into.name}.{secrets.token_hex(4)}.tmp")
    try:
        atomic.write(temporary, chunks)
        temporary.replace(into)
    finally:
        temporary.unlink(missing_ok=True)


def small(source: Origin, name: str) -> bytes:
    """The bytes of a small file, not verified. Raises TierUnavailable, also for a file that is too large."""
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
    """The stream of the first of `names` that exists. Raises Missing and Unreachable."""
    *others, last = names
    for name in others:
        try:
            return source.open(name)
        except Missing:
            continue
    return source.open(last)
