"""Plain files: the documents of a long file, and of a file with separators."""

import gzip
import random

import pytest

from slipway.assets.datasets.reading import plain
from slipway.assets.datasets.reading.document import Text, UnfitDocument
from slipway.recipes.dataset import DatasetRecipe, ReadingSection
from tests.assets.datasets.test_formats import everything

pytestmark = pytest.mark.pure

SIZE = 1000

STORIES = ["Once upon a time λ", "there was a\n\ncorpus", "of short texts"]
END = "<|endoftext|>"


def lines(count: int, seed: int = 0) -> list[bytes]:
    draw = random.Random(seed)
    return [b" ".join(b"w%d" % draw.randrange(1000) for _ in range(12)) + b"\n" for _ in range(count)]


def cut(data: bytes, chunk: int = 1 << 18, longest: int = 10_000) -> list[bytes | None]:
    chunks = (data[begin : begin + chunk] for begin in range(0, len(data), chunk))
    return list(plain.cut(chunks, SIZE, longest))


@pytest.mark.parametrize("chunk", [7, 999, 1 << 18])
def test_parts_are_the_file_cut_at_ends_of_lines_however_it_is_read(chunk):
    data = b"".join(lines(300))
    parts = [part for part in cut(data, chunk) if part is not None]
    assert b"".join(parts) == data and parts == cut(data)
    assert all(part.endswith(b"\n") and SIZE // 2 <= len(part) <= SIZE + SIZE // 2 for part in parts[:-1])


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_part_ends_with_a_paragraph_where_one_ends(newline):
    rows = [line.replace(b"\n", newline) + (newline if n % 5 == 4 else b"") for n, line in enumerate(lines(300))]
    assert all(part is not None and part.endswith(newline * 2) for part in cut(b"".join(rows)))


@pytest.mark.parametrize("index", [0, 150, 299])
def test_a_change_leaves_nearly_all_other_parts_as_they_were(index):
    before = lines(300)
    after = [*before[:index], b"a line that was added\n", *before[index:]]
    old, new = set(cut(b"".join(before))), set(cut(b"".join(after)))
    assert len(old - new) <= 4 and len(old) > 15


@pytest.mark.parametrize("chunk", [100, 5000, 1 << 18])
def test_a_long_line_is_a_part_of_its_own_and_one_beyond_the_limit_is_not_kept(chunk):
    long, longer = b"x" * 5000 + b"\n", b"y" * 10_001 + b"\n"
    before, after = b"".join(lines(20)), b"".join(lines(20, seed=1))
    parts = cut(before + long + longer + after, chunk)
    remaining = [part for part in parts if part is not None]
    assert long in remaining and parts.count(None) == 1 and parts.index(None) == parts.index(long) + 1
    assert b"".join(remaining) == before + long + after


@pytest.mark.parametrize("tail", [b"", b"z" * 4000, b"z" * 20_000])
def test_a_last_line_without_its_end_is_read_too_unless_it_is_beyond_the_limit(tail):
    data = b"".join(lines(50))
    parts = cut(data + tail, 300)
    assert b"".join(part for part in parts if part) == (data if len(tail) > 10_000 else data + tail)
    assert parts.count(None) == (len(tail) > 10_000)


SMALL = {"whole_megabytes": 0.016, "longest_megabytes": 0.016}
"""So that a file of more than 16 kB is cut into parts of 1 kB."""


def documents(data: bytes, name: str = "a.txt", **reading: object) -> list[Text | UnfitDocument]:
    return everything(name, data, **SMALL | reading)


def text_of(items: list[Text | UnfitDocument]) -> str:
    return "".join(item.text for item in items if isinstance(item, Text))


def test_a_file_is_one_document_up_to_the_bound_and_several_beyond_it():
    data = b"".join(lines(400))
    assert documents(data[:16_000]) == [Text(0, data[:16_000].decode())]
    parts = documents(data)
    assert [part.number for part in parts] == list(range(len(parts))) and len(parts) > 10
    assert text_of(parts) == data.decode()
    assert parts == documents(gzip.compress(data), "a.txt.gz")


def test_null_divides_no_file_and_a_separator_divides_it_otherwise():
    data = b"".join(lines(400))
    assert documents(data, whole_megabytes=None) == [UnfitDocument(0, "longer than the limit")]
    assert documents(data, whole_megabytes=None, longest_megabytes=1) == [Text(0, data.decode())]
    assert len(documents(data, separator="\n")) == 400


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "cp1252"])
def test_parts_of_a_file_in_another_encoding_are_its_text(encoding):
    text = "".join(f"Die Größe der Bücher über Äpfel, Öl und süße Früchte, Zeile {n}.\n" for n in range(400))
    parts = documents(text.encode(encoding))
    assert len(parts) > 10 and text_of(parts) == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\n" * 40_000, "empty"), (b"\xff\1\xfe\2\n" * 9000, "not UTF-8"), (b"\0\0\1\2\n" * 9000, "a binary file")],
)
def test_a_long_file_that_is_no_text_is_set_aside_once(data, reason):
    assert documents(data) == [UnfitDocument(0, reason)]


def test_of_a_damaged_file_the_parts_before_the_damage_are_read():
    packed = gzip.compress(b"".join(lines(2000)))
    *parts, last = documents(packed[: len(packed) // 2], "a.txt.gz")
    assert len(parts) > 10 and last == UnfitDocument(len(parts), "truncated")


def test_other_formats_have_the_documents_that_their_files_name():
    row = b'{"text": "' + b"a word " * 2000 + b'"}\n'
    assert [document.number for document in documents(row * 2, "a.jsonl")] == [0, 1]


def test_a_recipe_that_does_not_name_the_bound_keeps_its_hash():
    source = {"kind": "directory", "path": "/corpus"}
    content = DatasetRecipe.model_validate({"name": "a", "source": source}).content()
    assert "whole_megabytes" not in content["reading"]
    other = ReadingSection(whole_megabytes=2.0)
    assert other.content()["whole_megabytes"] == 2.0 and ReadingSection(whole_megabytes=None).content()


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 18])
def test_what_stands_between_separators_is_a_document(monkeypatch, chunk):
    monkeypatch.setattr("slipway.assets.datasets.reading.plain.CHUNK", chunk)
    for data in (END.join(STORIES), END.join(STORIES) + END + "\n"):
        for name, packed in (("a.txt", data.encode()), ("a.txt.gz", gzip.compress(data.encode()))):
            assert everything(name, packed, separator=END) == [Text(n, text) for n, text in enumerate(STORIES)]


def test_a_blank_part_is_no_document_and_keeps_its_number():
    assert everything("a.txt", b"one\n\n  \nfour\n", separator="\n") == [Text(0, "one"), Text(3, "four")]


def test_a_part_that_is_no_document_costs_no_other_one():
    data = b"one\n" + b"x" * 1001 + b"\ncaf\xe9\nfour"
    expected = [
        Text(0, "one"),
        UnfitDocument(1, "longer than the limit"),
        UnfitDocument(2, "not UTF-8"),
        Text(3, "four"),
    ]
    assert everything("a.txt", data, separator="\n", longest_megabytes=0.001) == expected


@pytest.mark.parametrize("chunk", [1, 100, 1 << 18])
def test_a_part_of_any_length_is_not_kept(monkeypatch, chunk):
    monkeypatch.setattr("slipway.assets.datasets.reading.plain.CHUNK", chunk)
    data = b"x" * 5000 + END.encode() + b"two" + END.encode() + b"y" * 5000
    items = everything("a.txt", data, separator=END, longest_megabytes=0.001)
    first, last = (UnfitDocument(number, "longer than the limit") for number in (0, 2))
    assert items == [first, Text(1, "two"), last]


def test_only_plain_files_are_divided():
    line = b'{"text": "a\\nb"}\n'
    assert everything("a.jsonl", line, separator="\n") == [Text(0, "a\nb")]
    assert ReadingSection().separator is None and everything("a.txt", b"a\nb") == [Text(0, "a\nb")]


def test_of_a_truncated_file_the_parts_before_its_end_are_read():
    data = gzip.compress(b"".join(b"line %d of a file\n" % number for number in range(5000)))
    *texts, last = everything("a.txt.gz", data[: len(data) // 2], separator="\n")
    assert texts[0] == Text(0, "line 0 of a file") and last == UnfitDocument(len(texts), "truncated")
