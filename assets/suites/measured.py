"""A model's measurement on a suite by example, slice and task, stored with every example.

    <durable>/evaluations/<suite>/<checkpoint manifest>.json      the figures, and the hash of the examples' file
                                 /<blake3>.parquet                each example: its loss, its predictions, its answer

A measurement depends only on the bytes of the checkpoint and of the suite, so it is made once for each pair.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.suites import encoding, suite
from slipway.assets.suites.suite import DOCUMENTS, SLICES, Example
from slipway.trainer.base import atomic, codec, digest, regular_file
from slipway.trainer.record.scores import ExampleSums, perplexity

FORMAT = "slipway.evaluation/1"
FOLDER = "evaluations"
SCHEMA = pa.schema(
    [
        pa.field("task", pa.string()),
        pa.field("source", pa.string()),
        pa.field("language", pa.string()),
        pa.field("length", pa.string()),
        pa.field("size", pa.float64()),
        pa.field("loss", pa.float64()),
        pa.field("predicted", pa.int64()),
        pa.field("right", pa.int64()),
    ]
)
BITS = 1 / math.log(2)


@dataclass(frozen=True)
class ModelFigures:
    """One model on one suite. Losses by slice are of documents, in the unit of `loss_per`."""

    manifest: str
    """SHA-256 of the checkpoint's manifest."""
    suite: str
    """SHA-256 of the suite, or of the snapshot whose split is measured."""
    table: str
    """BLAKE3 of the examples' file."""
    examples: int
    loss: float
    """The mean over all predictions of documents, in nats."""
    perplexity: float
    accuracy: float
    unit: str
    """The unit in which the gate compares: bits per byte, or nats per prediction for models of other data than
    texts."""
    compared: float
    """The documents' loss in that unit."""
    milliseconds_per_prediction: float
    bits_per_byte: float = 0.0
    """0 for models of other data than texts."""
    calibration_error: float | None = None
    """Expected calibration error (Naeini et al., AAAI 2015): the difference between the probability of the likeliest
    prediction and its accuracy, averaged over ten bins of the probability. None if ranks share the vocabulary."""
    tasks: Mapping[str, float] = field(default_factory=dict)
    """The share of right answers, by task."""
    slices: Mapping[str, float] = field(default_factory=dict)
    """The loss of each slice, in `unit`, by `column=value`."""

    def figure(self, name: str) -> float | None:
        """A metric by its name in a gate; None if this model or suite does not have it."""
        if name in self.tasks:
            return self.tasks[name]
        value = getattr(self, name, None)
        if name == "bits_per_byte" and not value:
            return None
        return value


@dataclass(frozen=True)
class ExampleTable:
    """The examples of a measurement, in columns: [examples]."""

    columns: Mapping[str, Sequence[str]]
    """The task, and the columns of the slices."""
    sizes: npt.NDArray[np.float64]
    """Bytes of documents' text; 1 for a sample of a split."""
    losses: npt.NDArray[np.float64]
    """The summed loss in nats; 0 for a question."""
    predicted: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    """The number of right predictions; for a question, 1 for a right answer."""

    @property
    def documents(self) -> npt.NDArray[np.bool_]:
        return np.array([task == DOCUMENTS for task in self.columns["task"]])

    def compared(self, unit: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(losses, sizes) of the documents, [documents]; the gate compares the ratio of their sums."""
        own = self.documents
        if unit == BITS_PER_BYTE:
            return self.losses[own] * BITS, self.sizes[own]
        return self.losses[own], self.predicted[own].astype(np.float64)

    def slices(self) -> dict[str, npt.NDArray[np.bool_]]:
        """A mask of the documents of each slice, [documents], by `column=value`, without slices of all documents."""
        own = self.documents
        slices = dict[str, npt.NDArray[np.bool_]]()
        for name in SLICES:
            values = np.array(self.columns[name], dtype=object)[own]
            kinds = sorted({str(value) for value in values} - {""})
            if len(kinds) > 1:
                slices |= {f"{name}={kind}": values == kind for kind in kinds}
        return slices


BITS_PER_BYTE = "bits per byte"
NATS = "nats per prediction"


def of_suite(examples: Sequence[Example], sums: ExampleSums) -> ExampleTable:
    """The examples of a suite from those of its encoded snapshot. Raises ValueError if they do not match."""
    expected = sum(map(encoding.sequences, examples))
    if expected != len(sums.losses):
        raise ValueError(f"found {len(sums.losses)} measured sequences, expected the suite's {expected}")
    rows = list[tuple[float, int, int]]()
    index = 0
    for example in examples:
        if example.answers:
            costs = [sums.losses[index + 1 + number] - sums.losses[index] for number in range(len(example.answers))]
            likeliest = min(range(len(costs)), key=lambda n: costs[n] / max(1, len(example.answers[n].encode())))
            row = (0.0, 0, int(likeliest == example.right))
        else:
            row = (sums.losses[index], sums.predicted[index], sums.right[index])
        rows.append(row)
        index += encoding.sequences(example)
    columns = {name: [str(getattr(row, name)) for row in examples] for name in ("task", *SLICES)}
    sizes = np.array([row.bytes for row in examples], np.float64)
    losses, predicted, right = zip(*rows, strict=True)
    return ExampleTable(columns, sizes, np.array(losses), np.array(predicted), np.array(right))


def of_split(sums: ExampleSums) -> ExampleTable:
    """The samples of a split, as examples without slices."""
    count = len(sums.losses)
    columns = {name: [DOCUMENTS if name == "task" else ""] * count for name in ("task", *SLICES)}
    return ExampleTable(columns, np.ones(count), np.array(sums.losses), np.array(sums.predicted), np.array(sums.right))


def keep(durable: Path, manifest: str, on: str, table: ExampleTable, sums: ExampleSums, text: bool) -> ModelFigures:
    """Store a measurement with every example; `text` says whether it is a model of texts."""
    buffer = io.BytesIO()
    columns = {**table.columns, "size": table.sizes, "loss": table.losses}
    pq.write_table(
        pa.table({**columns, "predicted": table.predicted, "right": table.right}, SCHEMA), buffer, compression="zstd"
    )
    data = buffer.getvalue()
    unit = BITS_PER_BYTE if text else NATS
    losses, sizes = table.compared(unit)
    own = table.documents
    predicted = max(1, int(table.predicted[own].sum()))
    mean = float(table.losses[own].sum() / predicted)
    figures = ModelFigures(
        manifest=manifest,
        suite=on,
        table=digest.of_bytes(data),
        examples=len(own),
        loss=mean,
        perplexity=perplexity(mean),
        accuracy=float(table.right[own].sum() / predicted),
        unit=unit,
        compared=float(losses.sum() / sizes.sum()),
        milliseconds_per_prediction=1000 * sums.seconds / max(1, sum(sums.predicted)),
        bits_per_byte=float(losses.sum() / sizes.sum()) if text else 0.0,
        calibration_error=_calibration_error(sums),
        tasks=_tasks(table),
        slices={name: float(losses[part].sum() / sizes[part].sum()) for name, part in table.slices().items()},
    )
    atomic.create_only(_table_path(durable, figures), data)
    codec.replace(_path(durable, on, manifest), figures, FORMAT)
    return figures


def known(durable: Path, on: str, manifest: str) -> ModelFigures | None:
    """The stored measurement; None if there is none, or if its examples are gone or damaged and it must be repeated."""
    figures = codec.read_if_whole(_path(durable, on, manifest), ModelFigures, FORMAT)
    try:
        if figures is None or _data(durable, figures):
            return figures
        return None
    except (OSError, ValueError):
        return None


def examples(durable: Path, figures: ModelFigures) -> ExampleTable:
    """The examples of a measurement. Raises ValueError for a damaged file, and OSError for a missing one."""
    table = pq.read_table(io.BytesIO(_data(durable, figures)))
    columns = {name: table[name].to_pylist() for name in ("task", *SLICES)}
    numbers = (table[name].to_numpy() for name in ("size", "loss", "predicted", "right"))
    return ExampleTable(columns, *numbers)


def _data(durable: Path, figures: ModelFigures) -> bytes:
    path = _table_path(durable, figures)
    data = regular_file.read(path)
    there = digest.of_bytes(data)
    if there != figures.table:
        raise ValueError(f"{path}: found BLAKE3 {there}, expected {figures.table}")
    return data


def _tasks(table: ExampleTable) -> dict[str, float]:
    names = np.array(table.columns["task"], dtype=object)
    kinds = sorted(set(table.columns["task"]) - {suite.DOCUMENTS})
    return {kind: float(table.right[names == kind].mean()) for kind in kinds}


def _calibration_error(sums: ExampleSums) -> float | None:
    every = sum(count for count, _, _ in sums.confidence)
    if not every:
        return None
    return sum(abs(sure - right) for _, sure, right in sums.confidence) / every


def _path(durable: Path, on: str, manifest: str) -> Path:
    return durable / FOLDER / on / f"{manifest}.json"


def _table_path(durable: Path, figures: ModelFigures) -> Path:
    return durable / FOLDER / figures.suite / f"{figures.table}.parquet"
