"""Readers: every format gives its documents and the reasons for what is none, whatever the file holds."""

import functools
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.assets.datasets.reading.document import Reason, Text, UnfitDocument
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.reading.readers import read
from slipway.assets.datasets.reading.sources import SourceListing, list_source
from slipway.recipes.dataset import DatasetRecipe, ReadingSection

SMALL = ReadingSection(longest_megabytes=0.001)
TEXTS = [f"document {number} λ 数据\n" * (number % 7 + 1) for number in range(500)]


def everything(name: str, data: bytes, reading: ReadingSection = SMALL) -> list[Text | UnfitDocument]:
    return list(read(name, io.BytesIO(data), reading))


def json_lines(texts: list[str] = TEXTS) -> bytes:
    return b"".join(json.dumps({"id": number, "text": text}).encode() + b"\n" for number, text in enumerate(texts))


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def parquet(columns: dict[str, object], rows: int = 100) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=rows, data_page_size=256, use_dictionary=False)
    return buffer.getvalue()


def all_of(texts: list[str]) -> list[Text | UnfitDocument]:
    return [Text(number, text) for number, text in enumerate(texts)]


PACKED = {".gz": gzip.compress, ".zst": zstd}


@pytest.mark.parametrize("name", ["a.txt", "README.md", "src/main.rs", "Makefile", "settings.json"])
def test_any_other_file_is_one_document(name):
    assert everything(name, "one\ntext λ\n".encode()) == [Text(0, "one\ntext λ\n")]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_compressed_file_is_one_document_too(suffix):
    assert everything("a.md" + suffix, PACKED[suffix](b"text")) == [Text(0, "text")]


@pytest.mark.parametrize("name", ["a.jsonl", "A.JSONL", "a.ndjson"])
def test_a_json_line_is_a_document(name):
    assert everything(name, json_lines()) == all_of(TEXTS)


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_json_lines_give_the_same_documents(suffix):
    assert everything("a.jsonl" + suffix, PACKED[suffix](json_lines())) == all_of(TEXTS)


@pytest.mark.parametrize("suffix", PACKED)
def test_several_members_make_one_file(suffix):
    pack, half = PACKED[suffix], len(TEXTS) // 2
    data = pack(json_lines(TEXTS[:half])) + pack(json_lines(TEXTS[half:]))
    assert everything("a.jsonl" + suffix, data) == all_of(TEXTS)


def test_a_parquet_row_is_a_document():
    assert everything("a.parquet", parquet({"text": TEXTS, "id": list(range(len(TEXTS)))})) == all_of(TEXTS)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_any_arrow_type_are_read(kind):
    data = parquet({"text": pa.array([text.encode() for text in TEXTS] if kind == pa.binary() else TEXTS, kind)})
    assert everything("a.parquet", data) == all_of(TEXTS)


def test_the_text_may_be_in_a_field_of_a_field():
    deep, record = ReadingSection(text_field="warc.content.body"), {"warc": {"content": {"body": "text"}}}
    assert everything("a.jsonl", json.dumps(record).encode(), deep) == [Text(0, "text")]
    assert everything("a.parquet", parquet({"warc": [record["warc"]]}), deep) == [Text(0, "text")]


def test_a_byte_order_mark_is_no_part_of_a_text():
    mark = b"\xef\xbb\xbf"
    assert everything("a.txt", mark + b"text") == [Text(0, "text")]
    assert everything("a.jsonl", mark + b'{"text": "text"}') == [Text(0, "text")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a", }', "malformed JSON"),
        (b'{"text": "never ends', "malformed JSON"),
        (b"[" * 100_000, "malformed JSON"),
        (b'{"text": ' + b"1" * 5000 + b"}", "malformed JSON"),
        (b'{"text": "\xe9"}', "not UTF-8"),
        (b'{"text": "\\ud800"}', "not UTF-8"),
        (b'{"content": "a"}', "no text field"),
        (b'{"text": null}', "no text field"),
        (b'{"text": ["a"]}', "no text field"),
        (b'"text"', "no text field"),
        (b'{"text": ""}', "empty"),
        (b'{"text": "' + b"a" * 1001 + b'"}', "longer than the limit"),
        (b'{"text": "' + b"a" * 2_000_000 + b'"}', "longer than the limit"),
    ],
)
def test_a_line_that_is_no_document_loses_no_other_line(line, reason):
    data = b'{"text": "before"}\n' + line + b'\n\n{"text": "after"}'
    assert everything("a.jsonl", data) == [Text(0, "before"), UnfitDocument(1, reason), Text(3, "after")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [("é".encode("latin-1"), "not UTF-8"), (b"a" * 1001, "longer than the limit"), (b"\xef\xbb\xbf", "empty")],
)
def test_a_file_that_is_no_document_is_counted(data, reason):
    assert everything("a.txt", data) == [UnfitDocument(0, reason)]


def test_a_text_as_long_as_the_limit_is_read():
    assert everything("a.txt", b"a" * 1000) == [Text(0, "a" * 1000)]


def test_rows_that_are_no_documents_lose_no_other_row():
    values = [b"before", None, b"", b"\xe9", b"a" * 1001, b"after"]
    reasons: list[Reason] = ["no text field", "empty", "not UTF-8", "longer than the limit"]
    unfit = [UnfitDocument(number, reason) for number, reason in enumerate(reasons, start=1)]
    assert everything("a.parquet", parquet({"text": values})) == [Text(0, "before"), *unfit, Text(5, "after")]


def test_every_row_of_a_file_without_the_column_is_counted():
    assert everything("a.parquet", parquet({"body": TEXTS[:3]})) == [
        UnfitDocument(n, "no text field") for n in range(3)
    ]


def test_a_column_of_numbers_holds_no_texts():
    assert everything("a.parquet", parquet({"text": [1, 2]})) == [
        UnfitDocument(0, "no text field"),
        UnfitDocument(1, "no text field"),
    ]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_truncated_file_gives_the_documents_before_its_end_and_says_so(suffix):
    long = [text + str(number) * 20 for number, text in enumerate(TEXTS * 20)]
    data = PACKED[suffix](json_lines(long))
    *documents, last = everything("a.jsonl" + suffix, data[: len(data) // 2])
    assert len(documents) > 1000 and documents == all_of(long)[: len(documents)]
    assert last == UnfitDocument(len(documents), "truncated")


@pytest.mark.parametrize("suffix", PACKED)
def test_a_truncated_text_is_no_document(suffix):
    assert everything("a.txt" + suffix, PACKED[suffix](b"text" * 100)[:-5]) == [UnfitDocument(0, "truncated")]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_file_without_the_compression_of_its_name_is_counted(suffix):
    assert everything("a.jsonl" + suffix, b"plain text, and quite some of it") == [
        UnfitDocument(0, "malformed compression")
    ]


def test_a_truncated_parquet_file_gives_one_reason():
    data = parquet({"text": TEXTS})
    assert everything("a.parquet", data[:-100]) == [UnfitDocument(0, "truncated")]
    assert everything("a.parquet", b"no Parquet at all") == [UnfitDocument(0, "malformed Parquet")]


def test_a_damaged_parquet_page_loses_the_rest_of_the_file():
    data = bytearray(parquet({"text": [str(number) * 20 for number in range(2000)]}))
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    *documents, last = everything("a.parquet", bytes(data))
    assert documents == all_of([str(number) * 20 for number in range(len(documents))]) and len(documents) >= 100
    assert last == UnfitDocument(len(documents), "malformed Parquet")


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=300), st.sampled_from(["a.txt", "a.jsonl", "a.jsonl.gz", "a.zst", "a.parquet", "a.ndjson.zst"])
)
def test_no_content_of_a_file_raises_an_error(data, name):
    for item in everything(name, data):
        assert isinstance(item, Text | UnfitDocument)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_of_a_file_raises_an_error(data):
    name, original = data.draw(st.sampled_from(list(UNDAMAGED.items())))
    offset, value = data.draw(st.integers(0, len(original) - 1)), data.draw(st.integers(1, 255))
    damaged = original[:offset] + bytes([original[offset] ^ value]) + original[offset + 1 :]
    cut = data.draw(st.integers(0, len(original)))
    for item in everything(name, damaged[:cut] if data.draw(st.booleans()) else damaged):
        assert isinstance(item, Text | UnfitDocument)


UNDAMAGED = {
    "a.parquet": parquet({"text": TEXTS[:60]}, rows=20),
    "a.jsonl.gz": gzip.compress(json_lines(TEXTS[:60])),
    "a.jsonl.zst": zstd(json_lines(TEXTS[:60])),
}


class FailingDisk(io.BytesIO):
    """A stream that fails after some bytes, as a disk does."""

    def readinto(self, buffer) -> int:
        if self.tell() > 100:
            raise OSError(5, "Input/output error")
        return super().readinto(memoryview(buffer)[:50])

    def read(self, size: int | None = -1) -> bytes:
        buffer = bytearray(50 if size is None or size < 0 else min(size, 50))
        return bytes(buffer[: self.readinto(buffer)])

    read1 = read


@pytest.mark.parametrize("name", UNDAMAGED)
def test_a_failing_disk_raises_an_error(name):
    with pytest.raises(OSError, match="Input/output error"):
        list(read(name, FailingDisk(UNDAMAGED[name]), SMALL))


def listed(folder: Path) -> SourceListing:
    source = {"kind": "directory", "path": str(folder)}
    return list_source(
        DatasetRecipe.model_validate({"name": "n", "description": "d", "owner": "team:d", "source": source})
    )


@pytest.mark.parametrize("name", [*UNDAMAGED, "a.txt"])
def test_documents_come_with_the_hash_of_the_file(tmp_path, name):
    data = UNDAMAGED.get(name, b"text" * 1000)
    (tmp_path / name).write_bytes(data)
    listing = listed(tmp_path)
    opened = OpenedFile(listing, next(iter(listing.files)), functools.partial(read, reading=ReadingSection()))
    assert list(opened) == everything(name, data, ReadingSection())
    assert opened.blake3 == blake3(data).hexdigest()


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz", "a.parquet"])
def test_the_hash_is_that_of_the_whole_file_though_the_reader_stopped_early(tmp_path, name):
    data = UNDAMAGED.get(name, b"a" * 1_000_000)[:-60]
    (tmp_path / name).write_bytes(data)
    listing = listed(tmp_path)
    opened = OpenedFile(listing, next(iter(listing.files)), functools.partial(read, reading=SMALL))
    assert isinstance(list(opened)[-1], UnfitDocument)
    assert opened.blake3 == blake3(data).hexdigest()


MEASURE = """
import functools, sys
from pathlib import Path
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.reading.readers import read
from slipway.recipes.dataset import DatasetRecipe, ReadingSection
from slipway.assets.datasets.reading.sources import list_source

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

source = {"kind": "directory", "path": sys.argv[1]}
recipe = {"name": "n", "description": "d", "owner": "team:d", "source": source}
listing = list_source(DatasetRecipe.model_validate(recipe))
before = peak()
reader = functools.partial(read, reading=ReadingSection(longest_megabytes=1.0))
texts = sum(len(item.text) for item in OpenedFile(listing, list(listing.files)[0], reader))
print(texts, peak() - before)
"""
BOUNDS_MIB = {"large.jsonl.gz": 32, "large.parquet": 96}
"""Memory beyond the interpreter and its libraries, at `longest_megabytes: 1`, with Parquet's pages of 10 MB."""


def write_large(path: Path, megabytes: int) -> None:
    """A corpus of documents of 10 kB each; a Parquet page holds a thousand of them."""
    text = "".join(f"{number} λ " for number in range(1_500))[:9_000]
    if path.suffix == ".parquet":
        with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), use_dictionary=False) as writer:
            for first in range(0, megabytes * 100, 10_000):
                rows = range(first, min(first + 10_000, megabytes * 100))
                writer.write_table(pa.table({"text": [f"{number}{text}" for number in rows]}))
    else:
        with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
            for number in range(megabytes * 100):
                file.write(json.dumps({"text": f"{number}{text}"}, ensure_ascii=False) + "\n")


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "bound"), BOUNDS_MIB.items())
def test_a_corpus_several_times_larger_than_the_bound_is_read_in_bounded_memory(tmp_path, name, bound):
    write_large(tmp_path / name, megabytes=4 * bound)
    command = [sys.executable, "-c", MEASURE, str(tmp_path)]
    measured = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    characters, mebibytes = measured.stdout.split()
    assert int(characters) > 3 * bound * 2**20
    assert float(mebibytes) < bound
