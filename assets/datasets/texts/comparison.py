"""Comparison of each document with all others, in the tables of a duckdb connection that `document_table` opens.

Only one document of a cluster of near-duplicates is kept, and no training document of a cluster with validation
documents. Then training documents are left out that share a passage with an evaluation text: a text of the recipe's
evaluation sets and, if the recipe says so, of the validation split. The table records the reason and the evidence: the
document that is kept instead, or the passage.
"""

import bisect
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import logged_query
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.cleaning import near_duplicates, word_hashes
from slipway.assets.datasets.cleaning.decontamination import Leak, contaminated
from slipway.assets.datasets.cleaning.normalize import normalize
from slipway.assets.datasets.cleaning.verdicts import Verdicts
from slipway.assets.datasets.reading import readers
from slipway.assets.datasets.reading.document import Text
from slipway.assets.datasets.texts.quoted import quoted
from slipway.recipes.cleaning import CleaningSection, DecontaminationSection
from slipway.recipes.dataset import ReadingSection
from slipway.resources import sql
from slipway.trainer.base import digest, verify

FEATURES = """
    CREATE OR REPLACE VIEW features AS
    SELECT live.row, live.split, d.bands, d.signature, d.fingerprints FROM live
    JOIN read_parquet({segments}, filename = 'segment_file') d
    ON live.name = d.file AND live.number = d.number AND live.segment = parse_filename(d.segment_file, true)
    WHERE live.removed IS NULL
"""
NEAR = """
    UPDATE live SET removed = verdict, because = instead FROM (
        WITH members AS (SELECT row, first FROM near UNION SELECT first, first FROM near),
        clusters AS (
            SELECT live.row, live.split, row_number() OVER choice AS place,
                   first_value(live.split) OVER choice AS kept_split,
                   first_value(live.name || '#' || live.number) OVER choice AS instead
            FROM live JOIN members USING (row)
            WINDOW choice AS (PARTITION BY members.first ORDER BY live.split = 'validation' DESC, {order})
        )
        SELECT row, instead, CASE WHEN split = kept_split THEN 'near_duplicate'
                                  ELSE 'near_duplicate_of_validation' END AS verdict
        FROM clusters WHERE place > 1
    ) judged WHERE judged.row = live.row
"""
LOCATIONS = "SELECT segment, place FROM live WHERE row BETWEEN ? AND ? ORDER BY row"
ROWS_AT_ONCE = 1024
"""Places to read together; a query itself takes as long as reading this many."""
QUOTES = """
    UPDATE live SET removed = 'contaminated', because = names.name || ': ' || quotes.passage FROM quotes, names
    WHERE quotes.segment = live.segment AND quotes.place = live.place AND names.item = quotes.item
    AND live.split = 'train' AND live.removed IS NULL
"""
LEAKS = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("held_out", pa.int64()),
        pa.field("item", pa.string()),
        pa.field("passage", pa.string()),
    ]
)
"""A training document, and what shows that it leaks: the row of a held-out document or the name of an item, and the
passage."""
CONTAMINATED = """
    UPDATE live SET removed = 'contaminated', because = evidence FROM (
        SELECT leaks.row AS row, coalesce(leaks.item, held.name || '#' || held.number) || ': ' || passage AS evidence
        FROM read_parquet($leaks) AS leaks LEFT JOIN live AS held ON held.row = leaks.held_out
    ) shown WHERE shown.row = live.row
"""


def remove_near_duplicates(
    build: Build, connection: duckdb.DuckDBPyConnection, segments: list[str], order: str
) -> None:
    """Mark in `live` all but one of the documents that are nearly the same: a validation document is kept first, then
    the first in `order`, SQL over `live`."""
    rule = build.recipe.cleaning.near_duplicates
    if rule is None:
        return
    connection.execute(FEATURES.format(segments=sql.literals(segments)))
    near = near_duplicates.duplicates(connection, "features", rule.similarity, build.scratch)
    connection.register("near", near)
    connection.execute(NEAR.format(order=order))
    connection.unregister("near")


def remove_contaminated(build: Build, connection: duckdb.DuckDBPyConnection, segments: list[str]) -> None:
    """Mark in `live` the training documents that contain an evaluation item or share a passage with an evaluation text.

    Raises ValueError for an unreadable evaluation set.
    """
    rule = build.recipe.cleaning.decontamination
    if rule is None:
        return
    items = evaluation_items(rule)
    if not items and not rule.validation:
        return
    _remove_quotes(build, connection, items, rule.shortest, segments)
    texts = _Texts(connection.cursor(), Path(segments[0]).parent, items)
    connection.execute(FEATURES.format(segments=sql.literals(segments)))
    connection.register("evaluation", texts.evaluation)
    connection.execute("CREATE VIEW training AS SELECT row, fingerprints FROM features WHERE split = 'train'")
    own = "SELECT row, fingerprints FROM features WHERE split = 'validation' UNION ALL " if rule.validation else ""
    connection.execute(f"CREATE VIEW held_out AS {own}SELECT row, fingerprints FROM evaluation")
    connection.execute(
        "CREATE VIEW hashes AS SELECT row, blake3 AS hash FROM live UNION ALL SELECT row, hash FROM evaluation"
    )
    verdicts = Verdicts(build.folder, build.scratch)
    path = build.scratch / "leaks.parquet"
    with (
        logged_query(connection, build.log, "looking for contaminated documents"),
        writing(path),
        pq.ParquetWriter(path, LEAKS) as writer,
    ):
        leaks = contaminated(connection, "training", "held_out", texts.of, texts.of, rule, verdicts)
        while some := list(itertools.islice(leaks, ROWS_AT_ONCE)):
            writer.write_table(texts.table_of(some))
    verdicts.save()
    connection.execute(CONTAMINATED, {"leaks": str(path)})


def _remove_quotes(
    build: Build,
    connection: duckdb.DuckDBPyConnection,
    items: list["EvaluationItem"],
    shortest: int,
    segments: list[str],
) -> None:
    """Mark the training documents that contain a whole item."""
    quotes = quoted(build, [item.text for item in items], shortest, segments)
    names = pa.table({"item": pa.array(range(len(items)), pa.int64()), "name": [item.name for item in items]})
    if quotes.num_rows:
        connection.register("quotes", quotes)
        connection.register("names", names)
        connection.execute(QUOTES)


@dataclass(frozen=True)
class EvaluationItem:
    """An evaluation text."""

    name: str
    """The name of its file, `#`, its place there, and the name of its field unless that is `text`."""
    text: str


def evaluation_items(rule: DecontaminationSection) -> list[EvaluationItem]:
    """The items of a recipe's evaluation sets. Raises ValueError, with the path, for an unreadable file."""
    return [item for source in rule.against for field in source.fields for item in _read(Path(source.file), field)]


def digest_of_evaluation_sets(cleaning: CleaningSection) -> list[str]:
    """The BLAKE3 of each evaluation set. Raises ValueError for a missing file."""
    rule = cleaning.decontamination
    if not rule:
        return []
    return [verify.measure(_there(Path(source.file))).blake3 for source in rule.against]


def _read(path: Path, field: str) -> Iterator[EvaluationItem]:
    reading = ReadingSection(text_field=field)
    behind = "" if field == ReadingSection().text_field else f".{field}"
    with _there(path).open("rb") as stream:
        for document in readers.read(path.name, stream, reading):
            if not isinstance(document, Text):
                where = f"cleaning.decontamination.against: {path}: document {document.number}, field {field}"
                raise ValueError(f"{where}: {document.reason}, expected a text")
            yield EvaluationItem(f"{path.name}#{document.number}{behind}", normalize(document.text))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"cleaning.decontamination.against: found no file at {path}, expected an evaluation set")
    return path


class _Texts:
    """Texts by row: texts of `live` have their rows, texts of evaluation sets have negative rows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, segments: Path, evaluation: list[EvaluationItem]) -> None:
        self._connection = connection
        self._segments = segments
        self._evaluation = evaluation
        # Neighbours in the table are mostly neighbours in a segment, so few row groups are read twice.
        self._group = functools.lru_cache(maxsize=8)(self._group_now)
        self._begins = functools.lru_cache(maxsize=1024)(self._begins_now)
        self._locations = functools.lru_cache(maxsize=64)(self._read_locations)

    @property
    def evaluation(self) -> pa.Table:
        """Rows, BLAKE3 and fingerprints of the evaluation sets' texts."""
        rows = pa.array([-1 - index for index in range(len(self._evaluation))], pa.int64())
        fingerprints = [word_hashes.fingerprints(item.text) for item in self._evaluation]
        hashes = [digest.of_bytes(item.text.encode()) for item in self._evaluation]
        return pa.table({"row": rows, "hash": hashes, "fingerprints": pa.array(fingerprints, pa.list_(pa.uint64()))})

    def of(self, row: int) -> str:
        if row < 0:
            return self._evaluation[-1 - row].text
        return self._stored(row)

    def table_of(self, leaks: list[Leak]) -> pa.Table:
        """The training documents that leak, with the passage and, if it is one, the name of the evaluation set's
        item."""
        items = [self._evaluation[-1 - leak.held_out].name if leak.held_out < 0 else None for leak in leaks]
        columns = (
            [leak.row for leak in leaks],
            [leak.held_out for leak in leaks],
            items,
            [leak.passage for leak in leaks],
        )
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, LEAKS, strict=True)], schema=LEAKS
        )

    def _stored(self, row: int) -> str:
        segment, row_in_segment = self._location(row)
        begins = self._begins(segment)
        group = bisect.bisect(begins, row_in_segment) - 1
        return str(self._group(segment, group)[row_in_segment - begins[group]].as_py())

    def _location(self, row: int) -> tuple[str, int]:
        block, at = divmod(row, ROWS_AT_ONCE)
        return self._locations(block)[at]

    def _read_locations(self, block: int) -> list[tuple[str, int]]:
        """The segment of each row of a block, and the place there."""
        first = block * ROWS_AT_ONCE
        rows: list[tuple[str, int]] = self._connection.execute(LOCATIONS, [first, first + ROWS_AT_ONCE - 1]).fetchall()
        return rows

    def _begins_now(self, segment: str) -> list[int]:
        """The first row of each row group of a segment."""
        metadata = pq.read_metadata(self._segments / f"{segment}.parquet")
        counts = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        return list(itertools.accumulate(counts, initial=0))

    def _group_now(self, segment: str, group: int) -> pa.ChunkedArray:
        """The texts of a row group."""
        with pq.ParquetFile(self._segments / f"{segment}.parquet", pre_buffer=False) as file:
            return file.read_row_group(group, columns=["text"])["text"]
