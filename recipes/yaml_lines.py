"""A YAML reader that keeps the line of every value, so that a problem can name its line.

Plain scalars follow the core schema of YAML 1.2: `3e-4` is a number, `on` and `2026-01-01` are text. PyYAML's YAML 1.1
reads each of these differently, which would surprise the author of a recipe.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from slipway.recipes.problems import Location, Path, Problem, dotted


class Loader(yaml.SafeLoader):
    """PyYAML's parser with the scalars of YAML 1.2's core schema (without octal, hexadecimal, infinity and NaN).

    It refuses aliases, so that each value has one place and no document is endless.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML expects a class attribute; it is filled below

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias; write the value out", mark)
        return super().compose_node(parent, index)


_SCALARS: dict[str, tuple[str, str]] = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+", "-+0123456789"),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
}
for _name, (_pattern, _first) in _SCALARS.items():
    _starts = [*_first, ""] if _name == "null" else list(_first)
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), _starts)

_PLAIN: dict[str, Any] = {
    "tag:yaml.org,2002:null": lambda text: None,
    "tag:yaml.org,2002:bool": lambda text: {"true": True, "false": False}.get(text.lower(), text),
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:str": str,
}


_SECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass
class Document:
    """The value of a recipe, in JSON's types, and the location of each value in it."""

    value: Any
    locations: dict[Path, Location]

    def location_of(self, path: Path) -> Location:
        """The location of the value at `path`, or of the nearest value above it."""
        while path not in self.locations:
            path = path[:-1]
        return self.locations[path]

    def set(self, path: Path, value: Any, location: Location) -> None:
        """Set the value at `path` and make the sections above it. Raises KeyError(path) if a value above is not a
        section."""
        section = self.value
        created = {path: location}
        for depth, step in enumerate(path):
            if not isinstance(section, dict):
                raise KeyError(path[:depth])
            if depth == len(path) - 1:
                section[step] = value
            elif step not in section:
                created[path[: depth + 1]] = location
            section = section.setdefault(step, {})
        self.locations = {
            known_path: at for known_path, at in self.locations.items() if known_path[: len(path)] != path
        } | created


def read(data: bytes | str, file: str) -> tuple[Document | None, list[Problem]]:
    """The document in `data`, or None if it is not YAML, and all problems of its form."""
    try:
        node = yaml.compose(data, Loader)
        reader = _Reader(file)
        return Document(
            reader.value(node, ()) if node else None, {(): Location(file, 1)} | reader.locations
        ), reader.problems
    except yaml.YAMLError as error:
        return None, [_syntax_problem(error, data, file)]
    except RecursionError:
        return None, [Problem(Location(file, 1), "", "sections within sections without an end", "YAML")]


def _syntax_problem(error: yaml.YAMLError, data: bytes | str, file: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = data.encode() if isinstance(data, str) else data
        line = before[: error.position].count(b"\n") + 1
        return Problem(Location(file, line), "", "bytes that are not text", "YAML in UTF-8")
    assert isinstance(error, yaml.MarkedYAMLError)
    mark = error.problem_mark or error.context_mark
    mistake = ", ".join(filter(None, (error.context, error.problem)))
    return Problem(Location(file, mark.line + 1 if mark else 1), "", f"a mistake in the YAML ({mistake})", "YAML")


class _Reader:
    """Converts the nodes of one file to values, and collects their locations and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.locations: dict[Path, Location] = {}
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.locations.setdefault(path, self._at(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _SECTIONS:
            self._problem(node, path, f"the tag {node.tag}", "a plain value")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(key, path, "a list or a section as a key", "a name")
                continue
            if key.value in mapping:
                first = self.locations[(*path, key.value)].line
                self._problem(
                    key, (*path, key.value), "the field a second time", f"it once (it is on line {first} already)"
                )
                continue
            self.locations[(*path, key.value)] = self._at(key)
            mapping[key.value] = self.value(item, (*path, key.value))
        return mapping

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        if node.tag not in _PLAIN:
            self._problem(node, path, f"the tag {node.tag}", "a plain value")
            return node.value
        try:
            return _PLAIN[node.tag](node.value)
        except ValueError:
            return node.value  # a value that does not match its tag becomes text, and the schema reports it

    def _problem(self, node: yaml.Node, path: Path, actual: str, expected: str) -> None:
        self.problems.append(Problem(self._at(node), dotted(path), actual, expected))

    def _at(self, node: yaml.Node) -> Location:
        return Location(self.file, node.start_mark.line + 1)
