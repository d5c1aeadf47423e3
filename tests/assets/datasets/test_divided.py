"""Divided files: a separator stands between the documents of a plain file."""

import gzip

import pytest

from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection
from tests.assets.datasets.test_formats import everything

pytestmark = pytest.mark.pure

STORIES = ["Once upon a time λ", "there was a\n\ncorpus", "of short texts"]
END = "<|endoftext|>"


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 18])
def test_what_stands_between_separators_is_a_document(monkeypatch, chunk):
    monkeypatch.setattr("slipway.assets.datasets.reading.divided.CHUNK", chunk)
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
    monkeypatch.setattr("slipway.assets.datasets.reading.divided.CHUNK", chunk)
    data = b"x" * 5000 + END.encode() + b"two" + END.encode() + b"y" * 5000
    found = everything("a.txt", data, separator=END, longest_megabytes=0.001)
    first, last = (UnfitDocument(number, "longer than the limit") for number in (0, 2))
    assert found == [first, Text(1, "two"), last]


def test_only_plain_files_are_divided():
    line = b'{"text": "a\\nb"}\n'
    assert everything("a.jsonl", line, separator="\n") == [Text(0, "a\nb")]
    assert ReadingSection().separator is None and everything("a.txt", b"a\nb") == [Text(0, "a\nb")]


def test_of_a_truncated_file_the_parts_before_its_end_are_read():
    data = gzip.compress(b"".join(b"line %d of a file\n" % number for number in range(5000)))
    *texts, last = everything("a.txt.gz", data[: len(data) // 2], separator="\n")
    assert texts[0] == Text(0, "line 0 of a file") and last == UnfitDocument(len(texts), "truncated")
