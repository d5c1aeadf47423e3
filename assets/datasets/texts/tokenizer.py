"""Tokenizer: byte-level BPE, trained with `tokenizers`, applied with `tiktoken`.

Two libraries serve one tokenizer: only `tokenizers` trains, and `tiktoken` encodes about seven times faster with the
same merges (`encoders`). The file is the JSON of `tokenizers`, so that other tools can read it, named by its SHA-256.

It is trained in bounded memory. The trainer keeps each distinct piece of the text, once, with the places of its bytes.
Where words repeat, pieces do too; text without spaces, in Chinese or in base64, is new pieces throughout, and 100 MB of
it would take gigabytes. How fast pieces grow is measured on the first megabytes of the sample, whose documents are in
the order of their hashes, which is a random one.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from math import log2
from pathlib import Path

import pyarrow.parquet as pq
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel

from slipway.assets.datasets.building import heap
from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.documents.extracts import segment_path
from slipway.assets.datasets.texts import encoders, segments, sentence_pieces
from slipway.assets.datasets.texts.encoders import TextEncoding
from slipway.assets.datasets.texts.segments import TextPlace
from slipway.trainer.base import atomic, digest, parsing, regular_file
from slipway.trainer.data import vocabulary
from slipway.trainer.data.shards import TokenizerRecord

VERSION = "1"
"""The version of this code, raised when the same texts would give another tokenizer."""
ROWS_AT_ONCE = 8192
COMPARED_MEGABYTES = 2.0
"""Megabytes of the corpus on which an existing tokenizer is compared with the library's own results."""

LONGEST_RUN = 4096
"""Characters of white space, or of none, that the trainer gets as one. No version has this: a tokenizer that was
trained stays, and no language has a word of this length."""
_LONG_RUN = re.compile(rf"(?<!\S)\S{{{LONGEST_RUN},}}|(?<!\s)\s{{{LONGEST_RUN},}}")
PIECES = r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Merges stay inside these pieces: GPT-4's pattern, which keeps indentation together and numbers short."""

PROBE = "It's 12345 km;\n\tnaïve façade — 数据 λ 🙂\r\n  return  x_1 \u200d\x00"

SAMPLE = """
    WITH ordered AS (
        SELECT name, number, blake3, bytes, sum(bytes) OVER (ORDER BY right(blake3, 16)) AS so_far
        FROM read_parquet($table) WHERE split = 'train'
    )
    SELECT e.segment, o.name, o.number, o.blake3 FROM ordered o JOIN read_parquet($index) e ON e.name = o.name
    WHERE o.so_far - o.bytes >= $after AND o.so_far - o.bytes < $bytes ORDER BY e.segment, o.name, o.number
"""

PIECES_MEMORY = 1_000_000_000
"""The approximate limit for the memory of the trainer's pieces, in bytes; their growth is extrapolated."""
PIECE_BYTES = 350
BYTE_BYTES = 50
"""What the trainer takes for a piece, and in addition for each of its bytes (measured: benchmarks/RESULTS.md, "Training
of a tokenizer: memory")."""
MEASURED_MEGABYTES = 2.0
"""Megabytes of text in each of the two parts whose pieces are counted."""
Between = Callable[[float, float], Iterable[str]]
"""Returns the texts of the sample between two numbers of megabytes."""


def path(durable: Path, sha256: str) -> Path:
    return durable / "tokenizers" / f"{sha256}.json"


def train(texts: Iterable[str], vocab_size: int) -> bytes:
    """Train on `texts`; returns the tokenizer's JSON, the same for the same texts in any order.

    `vocab_size` counts the 256 bytes, the merges and, with the highest id, the end-of-document token; a small
    corpus gives fewer merges. Raises ValueError for a `vocab_size` without room for the bytes.
    """
    if vocab_size < 257:
        raise ValueError(f"tokenizer.vocab_size: found {vocab_size}, expected at least 257: every byte has a token")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitting()
    tokenizer.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_in_parts(texts), trainer)
    tokenizer.add_special_tokens([vocabulary.END_OF_DOCUMENT])
    return tokenizer.to_str().encode()


def _in_parts(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which runs of LONGEST_RUN characters and more are cut: the trainer's time grows with the square of
    a piece's length, so that a megabyte of one letter would take minutes."""
    for text in texts:
        begin = 0
        for run in _LONG_RUN.finditer(text):
            for end in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
                yield text[begin:end]
                begin = end
        yield text[begin:]


def splitting() -> pre_tokenizers.Sequence:
    """The pre-tokenizer that splits a text into pieces. Merges stay inside these."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def affordable_megabytes(megabytes: float, between: Between, splitting: pre_tokenizers.PreTokenizer) -> float:
    """Of `megabytes`, how many the sample may have so that its distinct pieces take no more than PIECES_MEMORY, about.

    The pieces of n parts of a text take c n^b (Heaps 1978, Information Retrieval, 7.5): c and b follow from the first
    part and the first two. A pure function of the texts; a sample of two parts is always allowed.
    """
    if megabytes <= 2 * MEASURED_MEGABYTES:
        return megabytes
    known = set[int]()
    with heap.trimmed():  # the pieces of some megabytes, which nothing needs any more
        one = _cost_of_pieces(between(0.0, MEASURED_MEGABYTES), known, splitting)
        two = one + _cost_of_pieces(between(MEASURED_MEGABYTES, 2 * MEASURED_MEGABYTES), known, splitting)
        known.clear()
    growth = log2(two / one) if one else 0.0
    if not growth or one * (megabytes / MEASURED_MEGABYTES) ** growth <= PIECES_MEMORY:
        return megabytes
    return max(float((PIECES_MEMORY / one) ** (1 / growth)), 2.0) * MEASURED_MEGABYTES


def _cost_of_pieces(texts: Iterable[str], known: set[int], splitting: pre_tokenizers.PreTokenizer) -> int:
    """The bytes that the trainer needs for new pieces of the texts; the pieces are added to `known`."""
    cost = 0
    for text in texts:
        for piece, _ in splitting.pre_tokenize_str(text):
            key = hash(piece)
            if key not in known:
                known.add(key)
                cost += PIECE_BYTES + BYTE_BYTES * len(piece)
    return cost


def write(durable: Path, data: bytes, scratch: Path | None = None) -> TokenizerRecord:
    """Write a trained tokenizer to the durable tier and describe it."""
    described = describe(data)
    target = path(durable, described.sha256)
    atomic.replace(target, data, scratch)  # an existing file gets the same bytes, and becomes young
    return described


def describe(data: bytes) -> TokenizerRecord:
    """The record of a tokenizer for a snapshot's manifest."""
    value = parsing.value(data)
    end = vocabulary.end_of_document(value)
    return TokenizerRecord(digest.sha256(data), vocab_size=vocabulary.size(value), end_of_document=end["id"])


def existing(file: Path, texts: Iterable[str] = ()) -> bytes:
    """The JSON of a tokenizer that was trained elsewhere, held to what it does with `texts`, a sample of the corpus.

    The file is that JSON, or a SentencePiece model. Raises ValueError, naming the file, when it is missing, is not a
    BPE, has no token that ends a document, gives other tokens with `tiktoken` than with `tokenizers` though it should
    not, or tokens that do not decode to the text.
    """
    try:
        data = regular_file.read(file)
        data = sentence_pieces.converted(data) if sentence_pieces.is_model(data) else data
        encoder = encoding(data)
        exact = encoders.Exact(data)
        describe(data)
    except FileNotFoundError:
        raise ValueError(f"tokenizer.file: found nothing at {file}, expected the JSON of a tokenizer") from None
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(
            f"tokenizer.file: {file}: {error}; expected a byte-level BPE in JSON, or a SentencePiece BPE"
        ) from error
    for text in itertools.chain([PROBE], texts):
        fault = _fault(encoder, exact, text)
        if fault:
            raise ValueError(f"tokenizer.file: {file}: {fault}")
    return data


def _fault(encoder: TextEncoding, exact: encoders.Exact, text: str) -> str:
    """The fault of a text's tokens; empty if there is none."""
    try:
        tokens = encoder.encode_ordinary(text)
        decoded = encoder.decode(tokens)
        agree = isinstance(encoder, encoders.Exact) or tokens == exact.encode_ordinary(text)
    except Exception as error:  # the libraries raise plain Exceptions
        return f"it does not encode {text[:100]!r}: {error}"
    if decoded != text:
        return f"its tokens do not decode to the text: {encoders.difference(text, decoded)}"
    if agree:
        return ""
    return f"tiktoken and tokenizers give other tokens of {text[:100]!r}"


def sample(build: Build, table: Path, index: Path, megabytes: float, after: float = 0.0) -> Iterator[str]:
    """Texts of the train split, at most `megabytes` of them: those whose hashes have the lowest ends, in no order;
    without those that are in a sample of `after` megabytes.

    Which ones they are is in a file of the scratch folder, so that duckdb's memory is free again when the first text
    comes and the trainer's memory begins to grow.
    """
    values = {"table": str(table), "index": str(index), "after": after * 1e6, "bytes": megabytes * 1e6}
    chosen = build.scratch / f"sample-{uuid.uuid4().hex}.parquet"
    with document_table.connect(build.scratch) as connection:
        reader = connection.sql(SAMPLE, params=values).to_arrow_reader(ROWS_AT_ONCE)
        with writing(chosen), pq.ParquetWriter(chosen, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    with pq.ParquetFile(chosen) as file:
        batches = file.iter_batches(ROWS_AT_ONCE)
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for segment, segment_rows in itertools.groupby(rows, key=lambda row: row[0]):
            text_places = (TextPlace(*row) for _, *row in segment_rows)
            yield from (text for _, text in segments.texts(segment_path(build.durable, segment), text_places))


def read(durable: Path, sha256: str) -> bytes:
    """The JSON of a stored tokenizer. Raises ValueError if it is missing or damaged."""
    source = path(durable, sha256)
    try:
        data = regular_file.read(source)
    except FileNotFoundError:
        raise ValueError(f"{source}: found no tokenizer there; build the dataset again") from None
    if digest.sha256(data) != sha256:
        raise ValueError(f"{source}: damaged: its SHA-256 is {digest.sha256(data)}")
    return data


def load(durable: Path, sha256: str) -> TextEncoding:
    """The encoder of a stored tokenizer, with the same ids as `tokenizers`. Raises ValueError as `read` does."""
    return encoding(read(durable, sha256))


def encoding(data: bytes) -> TextEncoding:
    """The encoder of a tokenizer's JSON: the fast one if it gives the same tokens, otherwise the library's own.

    Raises KeyError, TypeError or ValueError for JSON that is not a BPE.
    """
    if encoders.why_exact(parsing.value(data)):
        return encoders.Exact(data)
    return encoders.fast(data)
