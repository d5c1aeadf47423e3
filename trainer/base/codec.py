"""Codec: the one way in which a record becomes a JSON file and comes back, typed and checked.

A record is a dataclass or a mapping, and so is a section in it. Its file is readable JSON of its fields. Where a record
has a format ("slipway.fence/1"), the file has it in the field `format`, and a file of another format is an error. A
file that cannot be decoded raises `UndecodableRecord`, with the file, the field, what was found and what is expected.

Every file has a `checksum` of all its other fields, so a record with a changed byte is an error. A file of an earlier
version has no checksum, and is read without.
"""

import dataclasses
import enum
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from slipway.trainer.base import atomic, digest, parsing, regular_file
from slipway.trainer.base.invalid import Invalid, require

Record = TypeVar("Record")
Decoder = Callable[[Any], Any]
"""From a JSON value to a typed one. Raises Invalid, whose field is relative to the value."""

KEY = "key"
"""In the metadata of a dataclass's field: its key in a file, if that is not its name."""


CHECKSUM = "checksum"
"""The field of a file that has the checksum of all others."""
_SUM = re.compile(r"blake3:[0-9a-f]{64}")


SCALARS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
"""What a value must be, in words."""


class UndecodableRecord(ValueError):
    """The content of a file is not the expected record."""


class OtherFormat(UndecodableRecord):
    """A record is whole, and has the format of another version of Slipway. It is not damaged."""


def encode(record: Any, format: str = "") -> bytes:
    """The bytes of a record's file: its fields, its format if it has one, and the checksum of both."""
    fields = document(record, format)
    return atomic.readable_json({**fields, CHECKSUM: _checksum(fields)})


def document(record: Any, format: str = "") -> dict[str, Any]:
    """A record as JSON has it, with its format and without a checksum: for a file that people may edit."""
    described = {**({"format": format} if format else {}), **plain(record)}
    fields: dict[str, Any] = parsing.value(atomic.canonical_json(described))
    return fields


def decode(kind: type[Record], data: bytes, where: object, format: str = "") -> Record:
    """The record in a file's bytes; `where` names the file in messages. Raises UndecodableRecord."""
    try:
        fields = parsing.value(data)
    except json.JSONDecodeError as error:
        raise UndecodableRecord(f"{where}:{error.lineno}: not JSON: {error.msg}") from None
    try:
        require(isinstance(fields, dict), "", f"found {fields!r}, expected a section")
        verified = _verify(fields)
        if format:
            stored_format = fields.pop("format", None)
            message = f"found {stored_format!r}, expected {format!r}"
            if verified and stored_format != format:
                raise OtherFormat(f"{where}: field format: {message}")
            require(stored_format == format, "format", message)
        return build(kind, fields)
    except Invalid as fault:
        raise UndecodableRecord(
            f"{where}: field {fault.field}: {fault}" if fault.field else f"{where}: {fault}"
        ) from None


def read(path: Path, kind: type[Record], format: str = "") -> Record:
    """The record in a file. Raises UndecodableRecord, and OSError."""
    return decode(kind, regular_file.read(path), path, format)


def read_if_there(path: Path, kind: type[Record], format: str = "") -> Record | None:
    """The record in a file; None if there is no such file. Raises as `read`."""
    try:
        return read(path, kind, format)
    except FileNotFoundError:
        return None


def read_if_whole(path: Path, kind: type[Record], format: str = "") -> Record | None:
    """The record in a file; None if there is no such file, or if it is damaged: for records that can be made again.

    Raises OtherFormat, and OSError.
    """
    try:
        return read(path, kind, format)
    except OtherFormat:
        raise
    except (FileNotFoundError, UndecodableRecord):
        return None


def create_only(path: Path, record: Any, format: str = "") -> bool:
    """Write a record to a new file; False, and nothing changes, when the file exists. Raises OSError."""
    return atomic.create_only(path, encode(record, format))


def replace(path: Path, record: Any, format: str = "") -> None:
    """Write a record to a file, and replace an older one. Raises OSError."""
    atomic.replace(path, encode(record, format))


def plain(record: Any) -> Any:
    """A record, or a value in one, as JSON has it, without a format."""
    if dataclasses.is_dataclass(record):
        return {_key(field): plain(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {name: plain(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [plain(value) for value in record]
    return record.value if isinstance(record, enum.Enum) else record


def build(kind: type[Record], value: Any, at: str = "") -> Record:
    """The record of this kind that a JSON value describes.

    Raises Invalid with the dotted name of the field, which begins with `at`.
    """
    built: Record = _within(at, decoder(cast(Any, kind)), value)
    return built


@functools.cache
def decoder(kind: Any) -> Decoder:
    """The decoder of a type: a dataclass, a number, a text, a list, a mapping, a choice, or an optional one."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if dataclasses.is_dataclass(kind):
        return functools.partial(_dataclass, kind)
    if origin in (typing.Union, types.UnionType):
        return functools.partial(_one_of, arguments)
    if origin is Literal:
        return functools.partial(_choice, arguments)
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return functools.partial(_row, tuple(map(decoder, arguments)))
    if origin in (tuple, list, Sequence):
        return functools.partial(_list, tuple if origin is tuple else list, decoder(arguments[0]))
    if origin in (dict, Mapping):
        return functools.partial(_mapping, decoder(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda value: kind(_choice(tuple(member.value for member in kind), value))
    assert kind in (bool, int, float, str), f"{kind!r} is no type of a record's field"
    return functools.partial(_scalar, kind)


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"blake3:{digest.of_bytes(atomic.canonical_json(fields))}"


def _verify(fields: dict[str, Any]) -> bool:
    """Check and remove the checksum of a document; returns False if it has none. Raises Invalid."""
    stored_checksum = fields.pop(CHECKSUM, None)
    if stored_checksum is None:
        astray = [key for key, value in fields.items() if isinstance(value, str) and _SUM.fullmatch(value)]
        require(not astray, astray[0] if astray else "", "a checksum under another name: the file is damaged")
        return False
    try:
        expected = _checksum(fields)
    except ValueError as error:  # NaN, which we never write
        raise Invalid("", str(error)) from None
    require(
        stored_checksum == expected, CHECKSUM, f"found {stored_checksum!r}, expected {expected!r}: the file is damaged"
    )
    return True


def _dataclass(kind: Any, value: Any) -> Any:
    """A class with `subclass_for(value)` chooses the subclass that is built."""
    require(isinstance(value, dict), "", f"found {value!r}, expected a section")
    chosen = kind.subclass_for(value) if hasattr(kind, "subclass_for") else kind
    fields = _fields(chosen)
    for key in value:
        require(key in fields, key, f"unknown; expected one of {', '.join(fields)}")
    for key, field in fields.items():
        require(key in value or not field.required, key, "missing")
    return chosen(**{fields[key].name: _within(key, fields[key].decode, item) for key, item in value.items()})


class _Field(typing.NamedTuple):
    name: str
    decode: Decoder
    required: bool


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    """The fields of a dataclass by their keys in a file."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        _key(field): _Field(
            field.name,
            decoder(hints[field.name]),
            required=field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(kind)
    }


def _key(field: "dataclasses.Field[Any]") -> str:
    key: str = field.metadata.get(KEY, field.name)
    return key


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    """The first of several types that fits; for an optional type, the error is that of the type."""
    if value is None and type(None) in kinds:
        return None
    *others, last = [kind for kind in kinds if kind is not type(None)]
    for kind in others:
        try:
            return decoder(kind)(value)
        except Invalid:
            continue
    return decoder(last)(value)


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    require(value in choices, "", f"found {value!r}, expected one of {', '.join(map(repr, choices))}")
    return value


def _list(make: Callable[[Iterable[Any]], Any], item: Decoder, value: Any) -> Any:
    require(isinstance(value, list), "", f"found {value!r}, expected a list")
    try:
        return make(map(item, value))
    except Invalid:  # only now it is asked which one it was: a list may be long
        return make(_within(str(index), item, element) for index, element in enumerate(value))


def _row(items: tuple[Decoder, ...], value: Any) -> tuple[Any, ...]:
    fits = isinstance(value, list) and len(value) == len(items)
    require(fits, "", f"found {value!r}, expected a list of {len(items)}")
    return tuple(item(element) for item, element in zip(items, value, strict=True))


def _mapping(item: Decoder, value: Any) -> dict[str, Any]:
    require(isinstance(value, dict), "", f"found {value!r}, expected a section")
    return {name: _within(name, item, element) for name, element in value.items()}


def _scalar(kind: type, value: Any) -> Any:
    accepted = (int, float) if kind is float else (kind,)
    fits = isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)
    require(fits, "", f"found {value!r}, expected {SCALARS[kind]}")
    if kind is not float:
        return value
    require(math.isfinite(value), "", f"found {value!r}, expected a finite number")
    return float(value)


def _within(name: str, decode: Decoder, value: Any) -> Any:
    """The decoded value of a field; its faults name the field."""
    try:
        return decode(value)
    except Invalid as fault:
        raise Invalid(".".join(filter(None, (name, fault.field))), str(fault)) from None
