"""Encodings: a file that is not UTF-8 is read in the encoding that it names, or that its bytes spell."""

import codecs
import functools
import io

import pytest

from slipway.assets.datasets.reading import encodings
from slipway.assets.datasets.reading.document import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection
from tests.assets.datasets.test_formats import everything

pytestmark = pytest.mark.pure

SPANISH = (
    "La función devuelve un número según la opción indicada; si no hay más, añade «ninguno» al final del año. " * 3
)
FRENCH = "La présente fonction renvoie une chaîne de caractères où chaque élément a été remplacé par le précédent. " * 3
POLISH = (
    "Ta funkcja zwraca łańcuch znaków, w którym każdy następny element został już zastąpiony, jeżeli się różni. " * 3
)
GERMAN = "Der Bär fährt über die Brücke zum Gebäude, während die Größe der Fläche für alle Schüler geprüft wird. " * 3


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", SPANISH),
        ("cp1252", FRENCH),
        ("cp1252", GERMAN),
        ("iso8859_2", POLISH),
        ("cp1250", POLISH),
        (
            "euc_jp",
            "日本語の文書は、漢字と仮名で書かれています。この文は十分に長いので、符号化方式を推定できます。" * 3,
        ),
        ("koi8_r", "Этот текст написан по-русски, и он достаточно длинный, чтобы узнать его кодировку. " * 3),
        ("gb18030", "这个文件是用中文写的，它足够长，可以猜出它的编码。内核文档有很多这样的文件。" * 3),
    ],
)
def test_a_text_of_before_unicode_is_read_in_the_encoding_that_it_spells(encoding, text):
    assert everything("a.txt", text.encode(encoding)) == [Text(0, text)]


def test_a_recipe_may_name_the_encoding_of_files_that_are_not_utf_8():
    assert everything("a.txt", "café".encode("cp1252"), encoding="cp1252") == [Text(0, "café")]
    assert everything("a.txt", "café".encode(), encoding="cp1252") == [Text(0, "café")]
    with pytest.raises(ValueError, match="an encoding that Python knows"):
        ReadingSection(encoding="klingon")


def test_bytes_that_spell_no_text_are_set_aside():
    assert everything("a.dat", bytes(range(256)) * 8) == [UnfitDocument(0, "a binary file")]
    assert everything("a.txt", "café".encode("cp1252")) == [UnfitDocument(0, "not UTF-8")]  # too short to tell


def test_a_text_that_begins_with_a_long_passage_of_ascii_is_reported_by_what_is_not():
    text = "plain words\n" * 20_000 + SPANISH
    assert everything("a.txt", text.encode("cp1252")) == [Text(0, text)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_a_text_in_utf_16_or_utf_32_is_read(encoding):
    text = "λόγος is Greek, and the rest is English"
    assert everything("a.txt", text.encode(encoding)) == [Text(0, text)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "λόγος"}\n{"text": "数据"}\n'),
        ("a.json", '{"text": "λόγος"}\n{"text": "数据"}\n'),
        ("a.json", '[{"text": "λόγος"}, {"text": "数据"}]'),
        ("a.csv", "id,text\r\n1,λόγος\r\n2,数据\r\n"),
        ("a.txt", "λόγος\n数据\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_files_of_many_documents_are_read_in_utf_16_and_utf_32_with_their_mark(name, content, encoding):
    assert everything(name, content.encode(encoding), separator="\n") == [Text(0, "λόγος"), Text(1, "数据")]


def test_of_utf_16_that_is_damaged_the_line_is_set_aside():
    lines = [line.encode("utf-16-le") for line in ('{"text": "a"}\n', '{"text": "', '"}\n', '{"text": "b"}\n')]
    data = codecs.BOM_UTF16_LE + lines[0] + lines[1] + b"\x00\xd8" + lines[2] + lines[3]
    assert everything("a.jsonl", data) == [Text(0, "a"), UnfitDocument(1, "not UTF-8"), Text(2, "b")]
    assert everything("a.jsonl", data[:-1])[2].number == 2 and not isinstance(everything("a.jsonl", data[:-1])[2], Text)


def test_a_transcoded_stream_is_the_same_however_it_is_cut():
    text = "λόγος 数据 🙂\n" * 50
    for size in (1, 2, 3, 7, 4096):
        read = encodings._Transcoded(io.BytesIO(text.encode("utf-16")), "utf-16").read
        assert b"".join(iter(functools.partial(read, size), b"")).decode() == text


def test_a_text_of_mostly_zero_bytes_is_a_binary_file_and_one_with_some_is_a_text():
    assert everything("a.txt", bytes(1000)) == [UnfitDocument(0, "a binary file")]
    assert everything("a.txt", b"a\0\0b" * 100) == [UnfitDocument(0, "a binary file")]
    assert everything("a.txt", b"hello \0 world " * 50) == [Text(0, "hello \0 world " * 50)]


def test_a_row_or_a_line_that_is_not_utf_8_costs_no_other_one():
    rows = "id,text\n1,one\n2,café\n3,three\n".encode("cp1252")
    assert everything("a.csv", rows) == [Text(0, "one"), UnfitDocument(1, "not UTF-8"), Text(2, "three")]
    assert everything("a.csv", rows, encoding="cp1252") == [Text(0, "one"), Text(1, "café"), Text(2, "three")]
    array = '[{"text": "one"}, {"text": "café"}, {"text": "three"}]'.encode("cp1252")
    assert everything("a.json", array) == [Text(0, "one"), UnfitDocument(1, "not UTF-8"), Text(2, "three")]
    lines = '{"text": "one"}\n{"text": "café"}\n'.encode("cp1252")
    assert everything("a.jsonl", lines) == [Text(0, "one"), UnfitDocument(1, "not UTF-8")]
    assert everything("a.jsonl", lines, encoding="cp1252") == [Text(0, "one"), Text(1, "café")]
