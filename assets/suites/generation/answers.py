"""Answers: a version's text for each example of a task, with its metrics, stored as Parquet.

<durable>/evaluations/generation/<checkpoint manifest>/<blake3>.parquet   each example
                                                      /<task>.json        the newest figures of a task, and its file
"""

import io
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.trainer.base import atomic, codec, digest, regular_file

FORMAT = "slipway.generation/1"
FOLDER = "evaluations/generation"
SCHEMA = pa.schema(
    [
        pa.field("example", pa.int64(), nullable=False),
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("expected", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class AnsweredExample:
    """One example with the value of one metric."""

    example: int
    """Its number in the task, from 0."""
    prompt: str
    expected: str
    answer: str
    """The model's text, or its likelihoods for a question that is answered by likelihood."""
    metric: str
    value: float


@dataclass(frozen=True)
class TaskFigures:
    """A version's results on one task."""

    manifest: str
    """SHA-256 of the checkpoint's manifest."""
    task: str
    by: str
    """The source of the task (Slipway or the harness) and its version."""
    examples: int
    metrics: Mapping[str, float]
    """The mean of each metric over the examples."""
    table: str
    """BLAKE3 of the examples' file."""
    requested_examples: int = 0
    """The requested number of examples; a task may have fewer. 0 if an earlier version of Slipway measured."""


def keep(
    durable: Path, manifest: str, task: str, by: str, rows: Sequence[AnsweredExample], question_count: int
) -> TaskFigures:
    """Store every example, then the metrics. Raises ValueError without an example, and OSError."""
    if not rows:
        raise ValueError(f"task {task}: found no example")
    columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, SCHEMA), buffer, compression="zstd")
    data = buffer.getvalue()
    folder = durable / FOLDER / manifest
    names = sorted({row.metric for row in rows})
    figures = TaskFigures(
        manifest=manifest,
        task=task,
        by=by,
        examples=len({row.example for row in rows}),
        metrics={name: statistics.fmean(row.value for row in rows if row.metric == name) for name in names},
        table=digest.of_bytes(data),
        requested_examples=question_count,
    )
    atomic.create_only(folder / f"{figures.table}.parquet", data)
    codec.replace(folder / f"{task}.json", figures, FORMAT)
    return figures


def known(durable: Path, manifest: str, task: str, question_count: int) -> TaskFigures | None:
    """The stored results with as many examples; None if there are none, or their examples are gone or damaged."""
    figures = codec.read_if_whole(durable / FOLDER / manifest / f"{task}.json", TaskFigures, FORMAT)
    try:
        if figures is not None and figures.requested_examples == question_count and _data(durable, figures):
            return figures
        return None
    except (OSError, ValueError):
        return None


def examples(durable: Path, figures: TaskFigures) -> list[AnsweredExample]:
    """Every example of a task. Raises ValueError for a damaged file, and OSError for a missing one."""
    return [AnsweredExample(**row) for row in pq.read_table(io.BytesIO(_data(durable, figures))).to_pylist()]


def questions_of(rows: Sequence[AnsweredExample]) -> dict[str, str]:
    """The questions of the answered examples of one task, by BLAKE3."""
    shared = _shared([row.prompt for row in rows])
    texts = [f"{row.prompt[shared:]} {row.expected}" for row in rows]
    return {digest.of_bytes(text.encode()): text for text in texts}


def _data(durable: Path, figures: TaskFigures) -> bytes:
    path = durable / FOLDER / figures.manifest / f"{figures.table}.parquet"
    data = regular_file.read(path)
    there = digest.of_bytes(data)
    if there != figures.table:
        raise ValueError(f"{path}: found BLAKE3 {there}, expected {figures.table}")
    return data


def _shared(prompts: Sequence[str]) -> int:
    """The number of leading characters, in whole words, that all prompts share; 0 for a task with one question."""
    first = min(prompts, default="")
    last = max(prompts, default="")
    if first == last:
        return 0
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(character for character, _ in pairs)
    return next((length for length in range(len(common), 0, -1) if common[length - 1].isspace()), 0)
