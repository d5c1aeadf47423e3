"""Formats: what a file holds is told by its content; what no reader reads is set aside by name."""

import bz2
import csv
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.reading import formats
from slipway.assets.datasets.reading.document import About, Reason, Text, UnfitDocument
from slipway.assets.datasets.reading.readers import read
from slipway.recipes.dataset import ReadingSection

pytestmark = pytest.mark.pure

TEXTS = [f"document {number} λ 数据" for number in range(50)]
PARAGRAPH = "A paragraph that says something, and that is long enough to be the content of its page. "
PAGE = (
    "<!DOCTYPE html><html><head><title>Title</title><script>var hidden</script></head><body>"
    "<nav><a href=/>Home</a> <a href=/about>About</a></nav>"
    f"<main><h1>Heading</h1><p>{PARAGRAPH * 5}</p><p>{PARAGRAPH * 5}</p></main>"
    "<footer>All rights reserved</footer></body></html>"
)


FETCHED = About("http://example.org/", date="2026-01-02T03:04:05Z")


def everything(name: str, data: bytes, **reading) -> list[Text | UnfitDocument]:
    return list(read(name, io.BytesIO(data), ReadingSection(**reading)))


def numbered(texts: list[str]) -> list[Text | UnfitDocument]:
    return [Text(number, text) for number, text in enumerate(texts)]


def array(texts: list[str]) -> bytes:
    return json.dumps([{"id": number, "text": text} for number, text in enumerate(texts)], indent=1).encode()


def tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def response(body: bytes, kind: str) -> bytes:
    http = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + body
    return record("response", "application/http; msgtype=response", http)


def record(kind: str, media: str, block: bytes) -> bytes:
    of_page = (f"WARC-Target-URI: {FETCHED.url}", f"WARC-Date: {FETCHED.date}")
    fields = (f"WARC-Type: {kind}", *of_page, f"Content-Type: {media}")
    head = "\r\n".join(["WARC/1.0", *fields, f"Content-Length: {len(block)}", "", ""])
    return head.encode() + block + b"\r\n\r\n"


def test_an_array_of_objects_with_a_text_is_as_many_documents():
    assert everything("a.json", array(TEXTS)) == numbered(TEXTS)


def test_lines_in_a_json_file_are_documents():
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    assert everything("a.json", lines.encode()) == numbered(TEXTS)


@pytest.mark.parametrize(
    "data",
    [
        "[1, 2, 3]",
        '[{"name": "x"}]',
        '{\n "a": 1\n}\n',
        '{"text": {"a": 1}}',
        '{"of": {"text": "x"}}',
        '{"text": "x",}',
    ],
)
def test_json_that_is_program_data_is_one_document(data):
    assert everything("package.json", data.encode()) == [Text(0, data)]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_of_one_object_with_a_text_is_that_text(indent):
    record = {"id": 7, "text": "the text", "url": "http://example.org/"}
    [document] = everything("a.json", json.dumps(record, indent=indent).encode(), metadata={"url": "url"})
    assert document == Text(0, "the text", About("http://example.org/"))


def test_a_truncated_array_gives_the_elements_before_its_end():
    assert everything("a.json", array(TEXTS)[:-40]) == [*numbered(TEXTS[:-1]), UnfitDocument(49, "malformed array")]


def test_an_array_is_read_element_by_element_however_it_is_cut_into_chunks(monkeypatch):
    for chunk in (1, 7, 64):
        monkeypatch.setattr("slipway.assets.datasets.reading.json_files.CHUNK", chunk)
        assert everything("a.json", array(TEXTS)) == numbered(TEXTS)


@pytest.mark.parametrize(("name", "dialect"), [("a.csv", "excel"), ("a.tsv", "excel-tab")])
def test_a_row_of_a_table_is_a_document(name, dialect):
    buffer = io.StringIO()
    writer = csv.writer(buffer, dialect)
    writer.writerows([["id", "text"], *([number, f'{text},\n"quoted"'] for number, text in enumerate(TEXTS))])
    assert everything(name, buffer.getvalue().encode()) == numbered([f'{text},\n"quoted"' for text in TEXTS])


@pytest.mark.parametrize("separator", [";", "|"])
def test_the_names_of_the_columns_tell_what_is_between_them(separator):
    rows = f'id{separator}"my\nname"{separator}text\r\n1{separator}x{separator}"a, b{separator} c"\r\n\r\n'
    assert everything("a.csv", rows.encode()) == [Text(0, f"a, b{separator} c")]


def test_a_quotation_mark_without_its_end_is_named_as_damage():
    rows = b'id,text\n1,one\n2,"two\n3,three\n'
    assert everything("a.csv", rows) == [Text(0, "one"), UnfitDocument(1, "malformed table")]


def test_a_table_without_the_column_is_set_aside_as_one_document():
    assert everything("a.csv", b"id,name\n1,x\n2,y\n") == [UnfitDocument(0, "no text field")]


def test_a_page_is_its_main_content_without_navigation_and_scripts():
    for name in ("page.html", "page.htm", "page"):
        [page] = everything(name, PAGE.encode())
        assert isinstance(page, Text) and page.text.count(PARAGRAPH.strip()) == 10
        assert not any(word in page.text for word in ("hidden", "About", "rights", "<"))


@pytest.mark.parametrize("around", ["{}", "<article>{}</article>", "<div><article>{}</article></div>"])
def test_a_list_near_the_body_of_a_page_is_text_and_no_navigation(around):
    items = [f"Step {number}: boil the water, then let the rice cook for twelve minutes." for number in range(5)]
    recipe = f"<h1>Rice</h1><p>{PARAGRAPH * 3}</p><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
    page = f"<html><head><title>T</title></head><body><nav>Up</nav>{around.format(recipe)}</body></html>"
    archive = response(page.encode(), "text/html")
    for name, data in (("rice.html", page.encode()), ("crawl.warc", archive)):
        [document] = everything(name, data)
        assert isinstance(document, Text) and all(item in document.text for item in items)
        assert "Up" not in document.text


def test_a_page_in_another_encoding_is_read_in_it():
    page = PAGE.replace("Heading", "Überschrift").replace("<head>", '<head><meta charset="iso-8859-1">')
    [document] = everything("page.html", page.encode("latin-1"))
    assert isinstance(document, Text) and "Überschrift" in document.text


def test_a_page_without_text_is_empty():
    assert everything("page.html", b"<html><body><script>x</script></body></html>") == [UnfitDocument(0, "empty")]


def test_a_web_archive_gives_its_pages_and_texts_and_no_other_records():
    archive = (
        record("warcinfo", "application/warc-fields", b"software: x\r\n")
        + response(PAGE.encode(), "text/html; charset=utf-8")
        + response(b"\x89PNG", "image/png")
        + response(b"plain text", "text/plain")
        + record("conversion", "text/plain", "extracted λ".encode())
    )
    page, *texts = everything("crawl.warc", archive)
    assert isinstance(page, Text) and PARAGRAPH.strip() in page.text
    assert texts == [Text(1, "plain text", FETCHED), Text(2, "extracted λ", FETCHED)] and page.about == FETCHED


def test_a_truncated_web_archive_gives_what_is_before_the_end():
    archive = response(b"first", "text/plain") + response(b"second" * 100, "text/plain")
    assert everything("a.warc", archive[:-200]) == [Text(0, "first", FETCHED), UnfitDocument(1, "truncated")]


def test_the_members_of_an_archive_are_files_of_their_own():
    data = tar({"a.txt": b"one", "b.jsonl": b'{"text": "two"}\n{"text": "three"}\n', "c/d.md": b"four"})
    assert everything("a.tar", data) == numbered(["one", "two", "three", "four"])
    assert everything("a.tar.xz", lzma.compress(data)) == numbered(["one", "two", "three", "four"])


def test_an_archive_inside_an_archive_is_set_aside_and_the_rest_is_read():
    data = tar({"a.tar": tar({"x": b"x"}), "b.txt.bz2": bz2.compress(b"x"), "c.txt": b"read"})
    inside: Reason = "packed inside an archive"
    assert everything("a.tar", data) == [UnfitDocument(0, inside), UnfitDocument(1, inside), Text(2, "read")]


def test_a_truncated_archive_gives_the_members_before_its_end():
    data = tar({"a.txt": b"one", "b.txt": b"two" * 10_000})
    assert everything("a.tar", data[:-20_000])[0] == Text(0, "one")
    assert everything("a.tar", data[:-20_000])[-1] == UnfitDocument(1, "truncated")


@pytest.mark.parametrize(("suffix", "pack"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_other_compressions_are_read_by_their_suffix_or_their_content(suffix, pack):
    assert everything("a.json" + suffix, pack(array(TEXTS))) == numbered(TEXTS)
    assert everything("a.json", pack(array(TEXTS))) == numbered(TEXTS)
    [damaged] = everything("a.txt" + suffix, pack(b"text" * 10_000)[:-8])
    assert isinstance(damaged, UnfitDocument) and damaged.reason in ("truncated", "malformed compression")


def test_the_members_of_a_zip_are_files_of_their_own():
    data = zipped({"a.txt": b"one", "b.jsonl": b'{"text": "two"}\n{"text": "three"}\n', "c/": b"", "c/d.md": b"four"})
    assert everything("a.zip", data) == numbered(["one", "two", "three", "four"])


def test_a_damaged_member_of_a_zip_is_set_aside_and_those_behind_it_are_read():
    data = bytearray(zipped({"a.txt": b"one" * 1000, "b.txt": b"two"}))
    data[40] ^= 0xFF
    first, second = everything("a.zip", bytes(data))
    assert isinstance(first, UnfitDocument) and first.reason.startswith("malformed") and second == Text(1, "two")


def test_a_zip_without_its_end_has_no_index_and_no_documents():
    data = zipped({"a.txt": b"one", "b.txt": b"two"})
    assert everything("a.zip", data[:-30]) == [UnfitDocument(0, "truncated")]


def test_an_encrypted_member_of_a_zip_is_named_as_one():
    data = bytearray(zipped({"a.txt": b"one", "b.txt": b"two"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert everything("a.zip", bytes(data)) == [UnfitDocument(0, "encrypted"), Text(1, "two")]


def test_files_that_no_reader_reads_are_set_aside_by_what_they_are():
    assert everything("book.epub", zipped({"a.txt": b"x"})) == [UnfitDocument(0, "a zip archive under another name")]
    assert everything("manual.txt", b"%PDF-1.7 ...") == [UnfitDocument(0, "a binary file")]
    assert everything("digits.h5", b"\x89HDF\r\n\x1a\n" + bytes(100)) == [UnfitDocument(0, "an HDF5 file")]


@pytest.mark.parametrize("head", [b"\x89PNG\r\n\x1a\n", b"GIF89a", b"wOF2", b"RIFF\0\0\0\0WEBP", b"OggS"])
def test_pictures_fonts_and_sounds_are_no_texts_whatever_their_names(head):
    assert everything("page.html", head + bytes(50)) == [UnfitDocument(0, "a picture, a font or a sound")]


@pytest.mark.parametrize("root", ['<svg xmlns="http://www.w3.org/2000/svg">', "<svg:svg>", "<!-- a font -->\n<svg>"])
def test_a_drawing_in_svg_is_a_picture_unless_all_files_are_read_as_text(root):
    drawing = f'<?xml version="1.0"?>\n{root}<path d="M0 0"/></svg>'
    for name, data in (("a.svg", drawing.encode()), ("a.svg.gz", gzip.compress(drawing.encode()))):
        assert everything(name, data) == [UnfitDocument(0, "a picture, a font or a sound")]
        assert everything(name, data, format="text") == [Text(0, drawing)]
    assert everything("component.tsx", drawing.encode()) == [Text(0, drawing)]
    assert everything("note.svg", b"no drawing") == [Text(0, "no drawing")]


def test_a_tfrecord_is_known_by_the_checksum_of_its_first_length():
    assert formats._crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    length = struct.pack("<Q", 5)
    crc = formats._crc32c(length)
    checksum = struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    record = length + checksum + b"hello" + bytes(4)
    assert everything("train-00000-of-00002", record) == [UnfitDocument(0, "a TFRecord file")]
    assert formats.format_of("", length + bytes(13), "text") == "text"


def test_the_recipe_may_say_what_all_files_are():
    assert everything("page.html", PAGE.encode(), format="text") == [Text(0, PAGE)]
    assert everything("a.data", array(TEXTS), format="array") == numbered(TEXTS)


@given(st.binary(max_size=2000), st.sampled_from(["", ".json", ".csv", ".html", ".warc", ".tar", ".zip", ".xz", ".gz"]))
def test_whatever_a_file_holds_reading_it_ends_with_documents_or_reasons(data, suffix):
    for prefix in (b"", b"[", b"WARC/1.0\r\n", b"<html>", b"BZh", b"PK\x03\x04", b"text,"):
        for item in everything("a" + suffix, prefix + data):
            assert isinstance(item, Text | UnfitDocument)
