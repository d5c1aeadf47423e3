"""Damage: of a hostile or a broken file each part is set aside with its reason; nothing is lost without a word, ends
the build, or takes memory or time without a bound."""

import bz2
import csv
import io
import json
import lzma
import os
import tarfile
import zipfile
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.reading import json_files, pages, tables, web_archives
from slipway.assets.datasets.reading.document import Text, UnfitDocument
from slipway.assets.datasets.reading.listed_file import UnreadFile
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.reading.readers import read
from slipway.assets.datasets.reading.sources import list_source
from slipway.recipes.dataset import ReadingSection
from tests.assets.datasets.corpora import recipe_for

SMALL = ReadingSection(longest_megabytes=0.001)


def texts_of(name: str, data: bytes, **reading: object) -> list[str]:
    """The text or the reason of each document."""
    section = ReadingSection.model_validate(reading)
    items = read(name, io.BufferedReader(io.BytesIO(data)), section)
    return [item.text if isinstance(item, Text) else f"({item.reason})" for item in items]


class Counted(io.RawIOBase):
    """Bytes of which those that are read are counted."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data, self.read_bytes = io.BytesIO(data), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._data.readinto(buffer)
        self.read_bytes += count
        return count


def tar(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def header(kind: bytes, size: int, content: bytes) -> bytes:
    """A header of an archive that is followed by content, in whole blocks."""
    member = tarfile.TarInfo("header")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT) + content.ljust(-(-len(content) // 512) * 512, b"\0")


def parquet(columns: list[pa.Array], names: list[str]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=names), buffer)
    return buffer.getvalue()


def record(page: bytes, http: bytes = b"") -> bytes:
    """A response of a web archive."""
    content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + http + b"\r\n" + page
    return (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\n"
        b"Content-Type: application/http\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(content), content)
    )


def test_a_damaged_header_within_a_tar_archive_is_no_end_of_it():
    first, second = tar(("a.txt", b"one")), tar(("b.txt", b"two"))
    assert texts_of("a.tar", first[:1024] + b"\7" * 512 + second) == ["one", "(malformed archive)"]


@pytest.mark.parametrize("bytes_of_it", [1024, 1024 + 300])
def test_a_tar_archive_that_ends_before_its_end_or_in_a_header_is_truncated(bytes_of_it: int):
    assert texts_of("a.tar", tar(("a.txt", b"one"), ("b.txt", b"two"))[:bytes_of_it]) == ["one", "(truncated)"]


def test_an_archive_that_was_appended_to_a_tar_archive_is_read_too():
    assert texts_of("a.tar", tar(("a.txt", b"one")) + tar(("b.txt", b"two"))) == ["one", "two"]


def test_an_empty_member_of_an_archive_is_no_document_as_an_empty_file_is_none():
    assert texts_of("a.tar", tar(("a/__init__.py", b""), ("a/b.py", b"one"))) == ["one"]


@pytest.mark.parametrize(
    "headers",
    [
        header(tarfile.GNUTYPE_LONGNAME, 4, b"name") * 2000,
        header(tarfile.XHDTYPE, 46, b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"),
        header(tarfile.XHDTYPE, 60, b"25 GNU.sparse.map=0,x,zz\n"),
    ],
)
def test_a_header_that_python_answers_with_an_error_of_its_own_is_damage_of_the_archive(headers: bytes):
    assert texts_of("a.tar", tar(("a.txt", b"one"))[:1024] + headers + tar(("b.txt", b"two"))) == [
        "one",
        "(malformed archive)",
    ]


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_name_as_long_as_an_archive_is_not_read_into_memory(kind: bytes):
    content = Counted(header(kind, 1 << 33, b"") + b"n" * (1 << 23))
    assert list(read("a.tar", io.BufferedReader(content), SMALL)) == [UnfitDocument(0, "malformed archive")]
    assert content.read_bytes < 1 << 21


def test_a_member_in_damaged_bzip2_costs_itself_alone():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.txt", os.urandom(3000))
        archive.writestr("b.txt", b"two")
    data = bytearray(buffer.getvalue())
    data[60:400] = bytes(340)
    assert texts_of("a.zip", bytes(data)) == ["(malformed compression)", "two"]


def test_what_follows_in_a_file_of_xz_is_damage_if_it_is_none():
    one, two = (lzma.compress(json.dumps({"text": text}).encode() + b"\n") for text in ("one", "two"))
    assert texts_of("a.jsonl.xz", one + bytes(8) + two) == ["one", "two"]
    assert texts_of("a.jsonl.xz", one + bytes(8)) == ["one"]
    assert texts_of("a.jsonl.xz", one + b"\7" + two[1:]) == ["one", "(malformed compression)"]
    assert texts_of("a.jsonl.xz", one + two[:-20])[-1] == "(truncated)"


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress])
def test_any_amount_of_text_in_a_few_bytes_is_decompressed_as_it_is_read(compress):
    data = compress(b"a" * (1 << 22))
    stream = read("a.txt", io.BufferedReader(io.BytesIO(data)), SMALL)
    assert [document.reason for document in stream if isinstance(document, UnfitDocument)] == ["longer than the limit"]


def test_what_stands_behind_an_array_is_named():
    assert texts_of("a.json", b'[{"text": "one"}]\n\n') == ["one"]
    assert texts_of("a.json", b'[{"text": "one"}]\n[{"text": "two"}]') == ["one", "(malformed array)"]
    assert texts_of("a.json", b'[{"text": "one"}]' + b" " * 2 * json_files.CHUNK + b"x") == [
        "one",
        "(malformed array)",
    ]


def test_an_element_that_is_too_long_is_named_and_the_rest_of_the_file_with_it():
    data = json.dumps([{"text": "one"}, {"text": "a" * 4 * json_files.CHUNK}, {"text": "two"}]).encode()
    assert texts_of("a.json", data, longest_megabytes=0.001) == ["one", "(an element longer than the limit)"]


def test_a_line_of_a_table_that_is_too_long_is_not_read_into_memory():
    limit = csv.field_size_limit()
    try:
        content = Counted(b"text\none\n" + b"a" * 16 * tables.BESIDES + b"\ntwo\n")
        *_, last = read("a.csv", io.BufferedReader(content), SMALL)
        assert last == UnfitDocument(1, "a row longer than the limit")
        assert content.read_bytes < 4 * tables.BESIDES
    finally:
        csv.field_size_limit(limit)


def test_a_column_may_have_a_dot_in_its_name():
    assert texts_of("a.parquet", parquet([pa.array(["one"])], ["a.b"]), text_field="a.b") == ["one"]


def test_two_columns_of_one_name_are_damage_of_the_file():
    assert texts_of("a.parquet", parquet([pa.array(["one"]), pa.array(["two"])], ["text", "text"])) == [
        "(malformed Parquet)"
    ]


def test_a_field_in_a_list_holds_no_text():
    data = parquet([pa.array([[{"b": "one"}]])], ["a"])
    assert texts_of("a.parquet", data, text_field="a.list.element.b") == ["(no text field)"]


@pytest.mark.parametrize(
    "dates",
    [
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62], pa.timestamp("us")),
        pa.array([0], pa.timestamp("s", "Mars/Phobos")),
    ],
)
def test_a_date_that_is_none_is_left_out_and_the_text_is_read(dates: pa.Array):
    data = parquet([pa.array(["one"]), dates], ["text", "when"])
    (item,) = read("a.parquet", io.BytesIO(data), ReadingSection.model_validate({"metadata": {"date": "when"}}))
    assert isinstance(item, Text)
    assert (item.text, item.about.date) == ("one", "")
    assert date.max.year < 10_000


@pytest.mark.parametrize("cut", [60, 100, 150])
def test_a_record_of_a_web_archive_whose_headers_break_off_is_truncated(cut: int):
    one = record(b"<html><p>one</p></html>")
    assert texts_of("a.warc", one + one[:cut])[0] == "one"
    assert texts_of("a.warc", one + one[:cut])[1:] == ["(truncated)"]
    assert texts_of("a.warc", one + one[:-1]) == ["one", "one"]


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip"])
def test_a_page_that_is_not_decompressed_is_no_text_and_costs_itself_alone(coding: bytes):
    damaged = record(b"\x1f\x8b\7\7 no page", b"Content-Encoding: " + coding + b"\r\n")
    assert texts_of("a.warc", damaged + record(b"<html><p>one</p></html>")) == ["(malformed compression)", "one"]


@pytest.mark.parametrize("line", [b"a" * 1024, b"A: b\r\n" * 170])
def test_headers_of_a_web_archive_without_an_end_are_not_read_into_memory(line: bytes):
    content = Counted(b"WARC/1.0\r\nWARC-Type: response\r\nX: " + line * (1 << 13))
    items = list(read("a.warc", io.BufferedReader(content), SMALL))
    assert items == [UnfitDocument(0, "malformed archive")]
    assert content.read_bytes < 3 * web_archives.LONGEST_HEADERS


def test_a_page_that_says_in_ascii_that_it_is_in_utf_16_is_in_utf_8():
    assert texts_of("a.html", '<html><meta charset="utf-16"><p>über alle Maßen</p></html>'.encode()) == [
        "über alle Maßen"
    ]


def test_the_main_content_of_a_page_is_not_looked_for_at_any_depth(monkeypatch):
    deep = b"<html><body>%s<p>one</p>" % (b"<div><article>" * pages.DEEPEST)
    assert texts_of("a.html", deep) == ["one"]
    assert pages._depth(deep.decode()) == 2 * pages.DEEPEST
    assert pages._depth("<div></div>" * 5 + "<DIV><division></article></div><div >") == 1


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.warc", "a.tar", "a.jsonl", "a.txt", "a.html", "a.jsonl.xz"])
def test_a_file_that_changes_while_it_is_read_is_not_taken_for_a_damaged_one(tmp_path, name: str):
    texts = [{"text": str(number) * 999} for number in range(3000)]
    lines = b"\n".join(json.dumps(text).encode() for text in texts)
    page = record(b"<html><p>one</p></html>")
    content = {
        "a.json": json.dumps(texts).encode(),
        "a.csv": b"text\n" + lines,
        "a.warc": page * 5000,
        "a.tar": tar(*((f"{number}.txt", b"one " * 999) for number in range(500))),
        "a.jsonl.xz": lzma.compress(os.urandom(1 << 20)),
    }.get(name, lines)
    (tmp_path / name).write_bytes(content)
    listing = list_source(recipe_for(tmp_path))
    (file,) = listing.files
    opened = iter(OpenedFile(listing, file, lambda name, stream: read(name, stream, SMALL)))
    with pytest.raises(UnreadFile):
        for number, _ in enumerate(opened):
            if number == 0:
                with (tmp_path / name).open("ab") as appending:
                    appending.write(b"more")
