"""Archives: tar files, read as a stream, whose members are files with documents of their own."""

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from assets.datasets.reading.compression import DamagedFile
from assets.datasets.reading.items import Text, UnfitDocument

BUFFER = 1 << 18


def read(
    stream: BinaryIO, read_member: Callable[[str, BinaryIO], Iterator[Text | UnfitDocument]]
) -> Iterator[Text | UnfitDocument]:
    """The documents of all members that are files, numbered through; what follows damage is lost."""
    number = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                data = archive.extractfile(member) if member.isfile() else None
                if data is None:
                    continue
                for document in read_member(
                    member.name, cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, data), BUFFER))
                ):
                    yield document._replace(number=number)
                    number += 1
    except DamagedFile as damage:
        yield UnfitDocument(number, damage.args[0])
    except tarfile.TarError as error:
        yield UnfitDocument(number, "truncated" if isinstance(error, tarfile.ReadError) else "malformed archive")
