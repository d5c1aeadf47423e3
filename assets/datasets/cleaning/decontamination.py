"""Decontamination: finds training documents that contain a passage of a held-out document.

A training document is contaminated if it shares PASSAGE (13) words in a row with a held-out document, unless the
passage is boilerplate. As in GPT-3 (Brown et al. 2020, appendix C), boilerplate is a passage in more than `common`
training documents, such as a licence. A test that leaked many times would look the same, so a passage also counts if
the shared passages together make up `share` of the held-out document.

In scripts without spaces each character is compared as a word, and UNSPACED of them count as one: a passage is as long
there as in other scripts.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute

from slipway.assets.datasets.cleaning import word_hashes
from slipway.assets.datasets.cleaning.word_hashes import PASSAGE, WordHashes, WordPositions, of_passages
from slipway.recipes.cleaning import DecontaminationSection
from slipway.trainer.base.characters import ALONE, classes_of, codes_of, in_lower_case

CANDIDATES_AT_ONCE = 1024
LOCATED = 64
"""Held-out documents whose words stay in memory, mostly all those that one training document is compared with."""
UNSPACED = 3
"""Characters of a script without spaces that count as one word: between Chinese, whose words have 1.5 to 2, and Thai
and Khmer, whose words have 4 and more."""
TextOf = Callable[[int], str]


class Memory(Protocol):
    """The results of earlier comparisons: the passage that two documents share, as the training document writes it, or
    None."""

    @property
    def known(self) -> str:
        """The stored results as SQL: a relation with the distinct column `key`, and `passage`."""

    def keep(self, recalled: pa.RecordBatch) -> None:
        """Keep these stored results, with the same columns; results that are not kept are forgotten."""

    def note(self, key: str, passage: str | None) -> None:
        """Store a new result."""


@dataclass(frozen=True)
class Leak:
    """A training document and the held-out document that it shares a passage with, both by their row."""

    row: int
    held_out: int
    passage: str
    """The first 13 shared words, as the training document writes them."""


def contaminated(
    connection: duckdb.DuckDBPyConnection,
    training: str,
    held_out: str,
    training_text: TextOf,
    held_out_text: TextOf,
    rule: DecontaminationSection,
    memory: Memory | None = None,
) -> Iterator[Leak]:
    """The contaminated training documents, ascending and distinct, each with the first held-out document that shows it.

    `training` and `held_out` name relations of the connection with the columns `row` and `fingerprints`
    (`word_hashes.fingerprints`). The texts of candidates are read by row and compared word by word, not by hash alone.
    Two kinds of passages are found: those whose fingerprint is in at most `rule.common` training documents, and all
    passages of a document that has `rule.share` of the held-out document's fingerprints. Pairs that `memory` knows are
    not compared again; with it, a relation `hashes` has the columns `row` and `hash`, which identifies the text. The
    connection must not be used for anything else before the iterator ends.
    """
    _prepare(connection, training, held_out, rule)
    training_words = functools.lru_cache(maxsize=1)(lambda row: _Located(training_text(row)))
    held_out_words = functools.lru_cache(maxsize=LOCATED)(lambda row: _Located(held_out_text(row)))
    candidates = connection.sql(_recalled(memory), params=[rule.common, rule.share])
    last = None
    for batch in candidates.to_arrow_reader(CANDIDATES_AT_ONCE):
        if memory:
            memory.keep(batch.filter(pa.compute.invert(batch["fresh"])).select(["key", "passage"]))
        for pair in batch.filter(pa.compute.or_(batch["fresh"], batch["passage"].is_valid())).to_pylist():
            row = pair["row"]
            held_out_row = pair["held_out"]
            passage = pair["passage"]
            if row == last:
                continue
            if pair["fresh"]:
                passage = _shared(
                    training_words(row), held_out_words(held_out_row), np.array(pair["evidence"], np.uint64)
                )
                if memory:
                    memory.note(pair["key"], passage)
            if passage is not None:
                last = row
                yield Leak(row, held_out_row, passage)
    connection.execute("drop table _unplaced; drop table _seen; drop table _held")


def passage(text: str, held_out: str, evidence: WordHashes) -> str | None:
    """The first PASSAGE words in a row that `text` shares with `held_out`, with a fingerprint of the evidence.

    Every document with a passage has its fingerprint, so the fingerprint is rare only if these documents are few.
    """
    return _shared(_Located(text), _Located(held_out), evidence)


class _Located:
    """The words of a text, in order: their hashes and places, and the fingerprints of its passages."""

    def __init__(self, text: str) -> None:
        codes = codes_of(text)
        classes = classes_of(codes)
        self._text = text
        self._starts: WordPositions
        self._ends: WordPositions
        self._starts, self._ends = word_hashes.spans(classes)
        self.hashes = word_hashes.hashes_at(codes, self._starts, self._ends)
        self.passages = word_hashes.grams(self.hashes, PASSAGE)
        self.fingerprints = of_passages(self.hashes)
        self._counts = np.where(classes[self._starts] & ALONE, 1, UNSPACED)

    @functools.cached_property
    def distinct(self) -> tuple[WordHashes, WordPositions]:
        """The distinct hashes of passages, ascending, and the first place of each."""
        return np.unique(self.passages, return_index=True)

    def end_of_passage(self, first: int, behind: int) -> int | None:
        """The end of PASSAGE words that start at the word `first`; None if there are fewer before the word `behind`."""
        counted = np.cumsum(self._counts[first:behind]) >= PASSAGE * UNSPACED
        if not counted.any():
            return None
        return first + int(np.argmax(counted)) + 1

    def passage(self, first: int, behind: int) -> str:
        """The text from the word `first` to the word before `behind`."""
        return self._text[self._starts[first] : self._ends[behind - 1]]

    def lower_cased(self, first: int, behind: int) -> list[str]:
        """The words there in lower case."""
        return [in_lower_case(self.passage(index, index + 1)) for index in range(first, behind)]


def _shared(training: _Located, held_out: _Located, evidence: WordHashes) -> str | None:
    """The first passage of `training` that is in `held_out` too, and of which a fingerprint is in the evidence."""
    indexes = np.flatnonzero(np.isin(training.fingerprints, evidence))
    known, firsts = held_out.distinct
    for index, at in zip(indexes.tolist(), np.searchsorted(known, training.passages[indexes]).tolist(), strict=True):
        if at == len(known) or known[at] != training.passages[index]:
            continue
        first, behind, away = _run(training, index, held_out, int(firsts[at]))
        end = training.end_of_passage(first, behind)
        if end is not None and training.lower_cased(first, end) == held_out.lower_cased(first + away, end + away):
            return training.passage(first, end)
    return None


def _run(training: _Located, index: int, held_out: _Located, at: int) -> tuple[int, int, int]:
    """The longest run of equal words around PASSAGE equal ones: its first word in `training`, the word behind it, and
    how far away it is in `held_out`."""
    before = _equal(training.hashes[:index][::-1], held_out.hashes[:at][::-1])
    after = _equal(training.hashes[index:], held_out.hashes[at:])
    return index - before, index + after, at - index


def _equal(training: WordHashes, held_out: WordHashes) -> int:
    """The number of leading words that are equal."""
    shorter = min(len(training), len(held_out))
    different = np.flatnonzero(training[:shorter] != held_out[:shorter])
    return int(different[0]) if len(different) else shorter


def _prepare(connection: duckdb.DuckDBPyConnection, training: str, held_out: str, rule: DecontaminationSection) -> None:
    """Tables: `_held`, the held-out fingerprints, and `_seen`, those of them in training documents.

    `documents` counts the training documents with the fingerprint, `place` is its place among the held-out document's
    from the rarest on, `size` is how many that has.
    """
    connection.execute(f"""
        create or replace temp table _unplaced as
            select row, len(fingerprints) as size, unnest(fingerprints) as fingerprint from {held_out}
    """)
    connection.execute(f"""
        create or replace temp table _seen as
            select row, fingerprint from (select row, unnest(fingerprints) as fingerprint from {training})
            where fingerprint in (select fingerprint from _unplaced)
    """)
    connection.execute("""
        create or replace temp table _held as
            with frequencies as (select fingerprint, count(*) as documents from _seen group by fingerprint)
            select row, size, fingerprint, coalesce(documents, 0) as documents,
                row_number() over (partition by row order by coalesce(documents, 0), fingerprint) as place
            from _unplaced left join frequencies using (fingerprint)
    """)


def _recalled(memory: Memory | None) -> str:
    """SQL for the candidates with their stored results; `fresh` candidates must be compared."""
    if memory is None:
        nothing = "null::varchar as key, null::varchar as passage"
        return f"{_CANDIDATES} select *, {nothing}, true as fresh from candidates {_ORDER}"
    return f"""
        {_CANDIDATES}, keyed as (
            select candidates.*, sha256(ours.hash || theirs.hash || evidence::varchar) as key
            from candidates join hashes as ours using (row) join hashes as theirs on theirs.row = held_out
        )
        select row, held_out, key, passage, known.key is null as fresh,
            case when known.key is null then evidence end as evidence
        from keyed left join {memory.known} as known using (key) {_ORDER}
    """


_CANDIDATES = """
    with pairs as (
        select distinct _seen.row as row, _held.row as held_out from _seen join _held using (fingerprint)
        where documents <= $1 or place <= size - ceil($2 * size) + 1
    ),
    candidates as (
        select pairs.row as row, held_out, list_sort(
            case when count(*) >= $2 * any_value(size) then list(_seen.fingerprint)
            else list(_seen.fingerprint) filter (where documents <= $1) end
        ) as evidence
        from pairs join _seen on _seen.row = pairs.row
        join _held on _held.row = held_out and _held.fingerprint = _seen.fingerprint
        group by pairs.row, held_out
        having count(*) >= $2 * any_value(size) or bool_or(documents <= $1)
    )
"""
"""Pairs that share a rare fingerprint, or a share of the held-out document's.

A document that shares n of m fingerprints has at least one of any m - n + 1 of them. Looking for the rarest ones keeps
boilerplate from pairing everything with everything (the prefix filter of Chaudhuri, Ganti, Kaushik, ICDE 2006).
"""
_ORDER = "order by row, held_out"
