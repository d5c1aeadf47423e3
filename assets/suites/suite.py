"""A suite on disk: a manifest and a table of examples, both immutable and named by their hashes.

    <durable>/suites/<sha256>.json          the manifest
                    /<blake3>.parquet       the examples, in their order
                    /names/<name>.json      the suite of a recipe's name, and the content of the recipe

Examples are texts, so that models with different tokenizers are measured on the same examples. An example is a document
whose loss counts, or a question with one right answer among several.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.trainer.base import atomic, codec, digest, regular_file
from slipway.trainer.base.verify import check_sha256

FORMAT = "slipway.suite/1"
NAMED = "slipway.suite-name/1"
FOLDER = "suites"
DOCUMENTS = "documents"
"""The task of examples whose loss counts; all other examples are questions."""
SCHEMA = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
        pa.field("length", pa.string(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("answers", pa.list_(pa.string()), nullable=False),
        pa.field("right", pa.int32(), nullable=False),
    ]
)
REMEDY = "restore the file from a backup, or raise the edition of the suite's recipe for another suite"
SLICES = ("source", "language", "length")
LENGTHS = ((2_000, "short"), (20_000, "medium"))
"""The upper limit in bytes of each class of lengths; longer documents are "long"."""


@dataclass(frozen=True)
class Example:
    task: str
    text: str
    """The document, or the prompt of a question."""
    source: str = ""
    """The first part of the document's path in its source."""
    language: str = ""
    answers: tuple[str, ...] = ()
    """The answers of a question; empty for a document."""
    right: int = -1
    """The index of the right answer; -1 for a document."""

    @property
    def bytes(self) -> int:
        return len(self.text.encode())

    @property
    def length(self) -> str:
        return next((name for most, name in LENGTHS if self.bytes <= most), "long")

    @property
    def blake3(self) -> str:
        """The hash of all fields."""
        return digest.of_bytes("\x00".join((self.task, self.text, *self.answers, str(self.right))).encode())


@dataclass(frozen=True)
class Suite:
    """An immutable suite. Its manifest contains no date, so that equal inputs give equal manifests."""

    name: str
    recipe: Mapping[str, Any]
    """The fields of the recipe that decide its content; empty for a suite of a snapshot's own validation split."""
    snapshot: str
    """SHA-256 of the snapshot that its documents come from."""
    table: str
    """BLAKE3 of the examples' file."""
    examples: int
    tasks: Mapping[str, int] = field(default_factory=dict)
    """The number of examples by task."""
    left_out: int = 0
    """The number of documents left out because they share a passage with a training document."""

    def manifest(self) -> bytes:
        """The manifest's bytes; their SHA-256 is the suite's name on disk."""
        return atomic.canonical_json({"format": FORMAT, **asdict(self)})

    @property
    def sha256(self) -> str:
        return digest.sha256(self.manifest())


@dataclass(frozen=True)
class NamedSuite:
    """The suite that a name refers to."""

    suite: str
    recipe: Mapping[str, Any] = field(default_factory=dict)


def write(durable: Path, name: str, recipe: Mapping[str, Any], snapshot: str, examples: Sequence[Example],
          left_out: int = 0) -> Suite:  # fmt: skip
    """Write the examples and the manifest. Raises ValueError without a document."""
    tasks = {
        task: sum(example.task == task for example in examples)
        for task in sorted({example.task for example in examples})
    }
    if not tasks.get(DOCUMENTS):
        raise ValueError(f"suite {name}: found no held-out document that is in no training document, expected one")
    columns = {column: [getattr(example, column) for example in examples] for column in SCHEMA.names}
    columns["answers"] = [list(answers) for answers in columns["answers"]]
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, SCHEMA), buffer, compression="zstd")
    data = buffer.getvalue()
    written = Suite(name, recipe, snapshot, digest.of_bytes(data), len(examples), tasks, left_out)
    atomic.create_only(table_path(durable, written), data)
    atomic.create_only(manifest_path(durable, written.sha256), written.manifest())
    return written


def read(durable: Path, sha256: str) -> Suite:
    """Read a suite. Raises ValueError if it is gone or damaged."""
    path = manifest_path(durable, sha256)
    try:
        data = regular_file.read(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: the suite is gone; {REMEDY}") from None
    try:
        check_sha256(data, sha256, str(path))
    except ValueError as error:
        raise ValueError(f"{error}; {REMEDY}") from None
    return codec.decode(Suite, data, path, FORMAT)


def examples(durable: Path, suite: Suite) -> list[Example]:
    """Read the examples of a suite. Raises ValueError for a table that is gone or damaged."""
    path = table_path(durable, suite)
    try:
        data = regular_file.read(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: the examples of suite {suite.name} are gone; {REMEDY}") from None
    actual = digest.of_bytes(data)
    if actual != suite.table:
        raise ValueError(f"{path}: found BLAKE3 {actual}, expected {suite.table}; {REMEDY}")
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    return [Example(r["task"], r["text"], r["source"], r["language"], tuple(r["answers"]), r["right"]) for r in rows]


def named(durable: Path, name: str) -> NamedSuite | None:
    """The suite that a recipe's name refers to; None before it is made. Raises OSError and UndecodableRecord."""
    return codec.read_if_there(name_path(durable, name), NamedSuite, NAMED)


def point(durable: Path, name: str, suite: Suite) -> None:
    """Let a recipe's name refer to this suite."""
    codec.replace(name_path(durable, name), NamedSuite(suite.sha256, suite.recipe), NAMED)


def manifest_path(durable: Path, sha256: str) -> Path:
    return durable / FOLDER / f"{sha256}.json"


def table_path(durable: Path, suite: Suite) -> Path:
    return durable / FOLDER / f"{suite.table}.parquet"


def name_path(durable: Path, name: str) -> Path:
    return durable / FOLDER / "names" / f"{name}.json"
