"""Decontamination: which training documents contain a passage of a held-out document.

A training document is contaminated if it shares PASSAGE (13) words in a row with a held-out document, unless the
passage is boilerplate. As in GPT-3 (Brown et al. 2020, appendix C), boilerplate is a passage in more than `common`
training documents, such as a licence. A test that leaked many times would look the same; so a passage also counts
when the shared passages together make up `share` of the held-out document.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np

from assets.datasets.cleaning import words
from assets.datasets.cleaning.characters import classes_of, codes_of, in_lower_case
from assets.datasets.cleaning.ngrams import PASSAGE, of_passages
from assets.datasets.cleaning.words import WordHashes, WordPositions
from recipes.cleaning import DecontaminationSection

CANDIDATES_AT_ONCE = 1024
LOCATED = 64
"""Held-out documents whose words are kept in memory: mostly all that one training document is compared with."""
TextOf = Callable[[int], str]


class Memory(Protocol):
    """The results for pairs of documents that were compared before."""

    def recall(self, row: int, held_out: int, evidence: WordHashes) -> bool | None:
        """Whether the documents share a passage of the evidence; None if it is not known."""

    def note(self, row: int, held_out: int, evidence: WordHashes, shared: bool) -> None: ...


@dataclass(frozen=True)
class Leak:
    """A training document and the held-out document that it shares a passage with, both by their row."""

    row: int
    held_out: int
    passage: str | None
    """The first 13 words that they share, as the training document writes them; None when the pair was compared in an
    earlier build."""


def contaminated(
    connection: duckdb.DuckDBPyConnection,
    training: str,
    held_out: str,
    training_text: TextOf,
    held_out_text: TextOf,
    rule: DecontaminationSection,
    memory: Memory | None = None,
) -> Iterator[Leak]:
    """The contaminated training documents, ascending, each once, with the first held-out document that shows it.

    `training` and `held_out` name relations of the connection with the columns `row` and `fingerprints`
    (`ngrams.fingerprints`). The texts of candidates are read by row and compared word by word, not by hash alone. Two
    kinds of passages are found: those whose fingerprint is in at most `rule.common` training documents, and all
    passages of a document that has `rule.share` of the held-out document's fingerprints. Pairs that `memory` knows are
    not compared again. The connection must not be used for anything else before the iterator ends.
    """
    _prepare(connection, training, held_out, rule)
    training_words = functools.lru_cache(maxsize=1)(lambda row: _Located(training_text(row)))
    held_out_words = functools.lru_cache(maxsize=LOCATED)(lambda row: _Located(held_out_text(row)))
    candidates = connection.sql(_CANDIDATES, params=[rule.common, rule.share])
    last = None
    for batch in candidates.to_arrow_reader(CANDIDATES_AT_ONCE):
        for each in batch.to_pylist():
            if each["row"] == last:
                continue
            row, held, evidence = each["row"], each["held_out"], np.array(each["evidence"], np.uint64)
            known = memory.recall(row, held, evidence) if memory else None
            shared = _shared(training_words(row), held_out_words(held), evidence) if known is None else None
            if memory and known is None:
                memory.note(row, held, evidence, shared is not None)
            if known or shared is not None:
                last = row
                yield Leak(row, held, shared)
    connection.execute("drop table _unplaced; drop table _seen; drop table _held")


def passage(text: str, held_out: str, evidence: WordHashes) -> str | None:
    """The first PASSAGE words in a row of `text` that `held_out` has too, and whose fingerprint is in the evidence.

    The fingerprint of a passage is in every document with the passage, so it is rare only if they are few.
    """
    return _shared(_Located(text), _Located(held_out), evidence)


class _Located:
    """The passages of a text: their hashes and fingerprints, in order, and the places of their words."""

    def __init__(self, text: str) -> None:
        codes = codes_of(text)
        self._text = text
        self._starts: WordPositions
        self._ends: WordPositions
        self._starts, self._ends = words.spans(classes_of(codes))
        hashes = words.hashes_at(codes, self._starts, self._ends)
        self.passages = words.grams(hashes, PASSAGE)
        self.fingerprints = of_passages(hashes)

    @functools.cached_property
    def distinct(self) -> tuple[WordHashes, WordPositions]:
        """The distinct hashes of passages, ascending, and the first place of each."""
        return np.unique(self.passages, return_index=True)

    def passage(self, first: int) -> str:
        """The text of PASSAGE words from the word `first` on."""
        return self._text[self._starts[first] : self._ends[first + PASSAGE - 1]]

    def words(self, first: int) -> list[str]:
        """The same words in lower case."""
        places = range(first, first + PASSAGE)
        return [in_lower_case(self._text[self._starts[place] : self._ends[place]]) for place in places]


def _shared(ours: _Located, theirs: _Located, evidence: WordHashes) -> str | None:
    """The first passage of `ours` that is in `theirs` too, and whose fingerprint is in the evidence."""
    places = np.flatnonzero(np.isin(ours.fingerprints, evidence))
    known, firsts = theirs.distinct
    for place, at in zip(places.tolist(), np.searchsorted(known, ours.passages[places]).tolist(), strict=True):
        equal = at < len(known) and known[at] == ours.passages[place]
        if equal and ours.words(place) == theirs.words(int(firsts[at])):
            return ours.passage(place)
    return None


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


_CANDIDATES = """
    with pairs as (
        select distinct _seen.row as row, _held.row as held_out from _seen join _held using (fingerprint)
        where documents <= $1 or place <= size - ceil($2 * size) + 1
    )
    select pairs.row as row, held_out,
        case when count(*) >= $2 * any_value(size) then list(_seen.fingerprint)
        else list(_seen.fingerprint) filter (where documents <= $1) end as evidence
    from pairs join _seen on _seen.row = pairs.row
    join _held on _held.row = held_out and _held.fingerprint = _seen.fingerprint
    group by pairs.row, held_out
    having count(*) >= $2 * any_value(size) or bool_or(documents <= $1)
    order by pairs.row, held_out
"""
"""Pairs that share a rare fingerprint, or a share of the held-out document's.

Who shares n of m fingerprints has one of any m - n + 1 of them: to look for the rarest keeps boilerplate from pairing
everything with everything (the prefix filter of Chaudhuri, Ganti, Kaushik, ICDE 2006).
"""
