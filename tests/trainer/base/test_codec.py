"""The codec: a record comes back from its file equal; a file of another record is refused, with the field named."""

import contextlib
import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.base import codec
from slipway.trainer.base.codec import OtherFormat, UndecodableRecord

pytestmark = pytest.mark.pure

FORMAT = "slipway.flight/1"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Wing:
    span: float
    color: Color


@dataclass(frozen=True)
class Flight:
    number: int
    wings: tuple[Wing, ...]
    kind: Literal["glider", "jet"]
    speeds: Mapping[str, float] = field(default_factory=dict)
    box: tuple[int, int] = (0, 0)
    pilot: str | None = None
    crew: Sequence[str] = field(default_factory=list)
    more: Mapping[str, Any] = field(default_factory=dict)
    seats: int = field(default=0, metadata={codec.KEY: "places"})
    landed: bool = False


FLIGHT = Flight(7, (Wing(2.5, Color.RED), Wing(2.0, Color.BLUE)), "jet", {"top": 9.0}, (1, 2), "Ada", ["Bo"], {}, 3)

texts, integers = st.text(max_size=8), st.integers(-(2**60), 2**60)
wings = st.builds(Wing, st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(Color))
flights = st.builds(
    Flight,
    number=integers,
    wings=st.lists(wings, max_size=3).map(tuple),
    kind=st.sampled_from(["glider", "jet"]),
    speeds=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    box=st.tuples(integers, integers),
    pilot=st.none() | texts,
    crew=st.lists(texts, max_size=3),
    more=st.dictionaries(texts, integers | texts | st.none(), max_size=3),
    seats=integers,
    landed=st.booleans(),
)


@given(flights)
def test_what_is_decoded_is_what_was_encoded(flight: Flight) -> None:
    assert codec.decode(Flight, codec.encode(flight, FORMAT), "flight.json", FORMAT) == flight


def test_a_file_has_the_format_and_the_keys_that_the_fields_name(tmp_path: Path) -> None:
    assert codec.create_only(tmp_path / "flight.json", FLIGHT, FORMAT)
    document = json.loads((tmp_path / "flight.json").read_bytes())
    assert (document["format"], document["places"], "seats" in document) == (FORMAT, 3, False)
    assert document["wings"][1] == {"span": 2.0, "color": "blue"}
    assert codec.read(tmp_path / "flight.json", Flight, FORMAT) == FLIGHT


def test_a_record_without_a_format_has_no_such_field(tmp_path: Path) -> None:
    codec.replace(tmp_path / "wing.json", Wing(1.0, Color.RED))
    assert set(json.loads((tmp_path / "wing.json").read_bytes())) == {"span", "color", "checksum"}
    assert codec.read(tmp_path / "wing.json", Wing) == Wing(1.0, Color.RED)


def test_a_record_of_an_earlier_version_lacks_fields_that_have_a_default() -> None:
    assert codec.build(Flight, {"number": 1, "wings": [], "kind": "jet"}) == Flight(1, (), "jet")


def test_the_first_record_stays(tmp_path: Path) -> None:
    path = tmp_path / "wing.json"
    assert codec.create_only(path, Wing(1.0, Color.RED))
    assert not codec.create_only(path, Wing(2.0, Color.RED))
    assert codec.read(path, Wing).span == 1.0


def test_a_missing_file_is_no_record_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    assert codec.read_if_there(tmp_path / "wing.json", Wing) is None
    (tmp_path / "wing.json").write_bytes(b'{"span": 1.0,')
    with pytest.raises(UndecodableRecord, match=r"wing\.json:1: not JSON"):
        codec.read_if_there(tmp_path / "wing.json", Wing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "slipway.flight/2"}, "field format: found 'slipway.flight/2', expected 'slipway.flight/1'"),
        ({"number": "7"}, "field number: found '7', expected a whole number"),
        ({"number": True}, "field number: found True, expected a whole number"),
        ({"wings": [{"span": 1.0}]}, "field wings.0.color: missing"),
        ({"wings": [{"span": 1.0, "color": "green"}]}, "field wings.0.color: found 'green', expected one of 'red'"),
        ({"wings": {}}, "field wings: found {}, expected a list"),
        ({"kind": "balloon"}, "field kind: found 'balloon', expected one of 'glider', 'jet'"),
        ({"speeds": {"top": "fast"}}, "field speeds.top: found 'fast', expected a number"),
        ({"box": [1]}, "field box: found [1], expected a list of 2"),
        ({"pilot": 3}, "field pilot: found 3, expected text"),
        ({"altitude": 3}, "field altitude: unknown; expected one of number, wings"),
        ({"seats": 3}, "field seats: unknown"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_what_is_expected(change: dict[str, Any], message: str) -> None:
    document = {**codec.document(FLIGHT, FORMAT), **change}
    with pytest.raises(UndecodableRecord) as error:
        codec.decode(Flight, json.dumps(document).encode(), "flight.json", FORMAT)
    assert str(error.value).startswith(f"flight.json: {message}")


@pytest.mark.parametrize("data", [b"[1, 2]", b'"text"', b"null"])
def test_a_document_that_is_no_section_is_refused(data: bytes) -> None:
    with pytest.raises(UndecodableRecord, match=r"flight\.json: found .*, expected a section"):
        codec.decode(Flight, data, "flight.json", FORMAT)


def test_no_truncation_and_no_changed_byte_gives_another_record() -> None:
    encoded = codec.encode(FLIGHT, FORMAT)
    assert codec.decode(Flight, encoded, "flight.json", FORMAT) == FLIGHT
    for data in damaged(encoded):
        with contextlib.suppress(UndecodableRecord):
            assert codec.decode(Flight, data, "flight.json", FORMAT) == FLIGHT


def test_no_changed_byte_gives_another_mapping() -> None:
    """A mapping takes any field: one whose name is not `checksum` any more too."""
    value = {"node-0": "the last words", "node-1": ""}
    for data in damaged(codec.encode(value)):
        with contextlib.suppress(UndecodableRecord):
            assert codec.decode(dict[str, str], data, "tails.json") == value


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_read() -> None:
    assert codec.decode(Wing, b'{"span": 1.0, "color": "red"}', "wing.json") == Wing(1.0, Color.RED)


def test_a_whole_record_of_another_format_is_distinguished_from_a_damaged_one() -> None:
    later = codec.encode({"format": "slipway.flight/2", "number": 1})
    with pytest.raises(OtherFormat, match=r"found 'slipway.flight/2', expected 'slipway.flight/1'"):
        codec.decode(Flight, later, "flight.json", FORMAT)
    with pytest.raises(UndecodableRecord, match="the file is damaged") as error:
        codec.decode(Flight, later.replace(b"flight/2", b"flight/3"), "flight.json", FORMAT)
    assert not isinstance(error.value, OtherFormat)


def test_what_can_be_made_again_is_absent_when_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "wing.json"
    codec.replace(path, Wing(1.0, Color.RED))
    assert codec.read_if_whole(path, Wing) == Wing(1.0, Color.RED)
    path.write_bytes(path.read_bytes()[:-20])
    assert codec.read_if_whole(path, Wing) is None
    path.unlink()
    assert codec.read_if_whole(path, Wing) is None


def damaged(encoded: bytes) -> Iterator[bytes]:
    """Every truncation, and every byte changed: by each of its bits, and to what JSON is made of."""
    for position, byte in enumerate(encoded):
        yield encoded[:position]
        for other in {*(byte ^ (1 << bit) for bit in range(8)), *b'"\\,:{}[] 0e'} - {byte}:
            yield encoded[:position] + bytes([other]) + encoded[position + 1 :]
