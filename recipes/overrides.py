"""Overrides of recipes by environment variables, for changes that do not belong in a file.

`SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS=50` sets `run.steps` of `trainings/tiny-decoder.yaml`: the folder,
the recipe and the fields, in capitals, joined by two underscores, with hyphens as underscores. The value is YAML.
"""

from collections.abc import Iterator, Mapping

from slipway.recipes import yaml_lines
from slipway.recipes.kinds import KINDS
from slipway.recipes.problems import Location, Path, Problem, dotted, format_value, unknown
from slipway.recipes.yaml_lines import Document

PREFIX = "SLIPWAY_"
BY_PARAMETER = ("trial", "space")
"""Sections of a sweep whose keys are parameters such as `section.field`: two parts of the variable make one key."""


def apply(documents: Mapping[tuple[str, str], Document | None], environ: Mapping[str, str]) -> list[Problem]:
    """Apply the environment's overrides to `documents`, which are keyed by kind and name; returns the problems.

    None stands for a document that exists but cannot be used. The values are validated later, together with the files.
    """
    return [
        problem
        for variable in sorted(environ)
        if variable.startswith(PREFIX) and "__" in variable
        for problem in _apply_one(documents, variable, environ[variable])
    ]


def _apply_one(documents: Mapping[tuple[str, str], Document | None], variable: str, text: str) -> Iterator[Problem]:
    kind, *rest = variable.removeprefix(PREFIX).lower().split("__")
    if kind not in KINDS:
        begins = " or ".join(f"{PREFIX}{known_kind.upper()}__" for known_kind in KINDS)
        yield Problem(Location(variable), "", f"the kind {kind.upper()}", f"a variable that begins {begins}")
        return
    if len(rest) < 2 or not all(rest):
        yield Problem(Location(variable), "", "no field", f"{PREFIX}{kind.upper()}__<RECIPE>__<FIELD>")
        return
    names = {name.replace("-", "_"): name for of_kind, name in documents if of_kind == kind}
    if rest[0] not in names:
        known = ", ".join(sorted(names.values())) or "there is none"
        yield Problem(Location(variable), "", f"the unknown recipe {rest[0]}", f"one of {kind}/ ({known})")
        return
    document = documents[kind, names[rest[0]]]
    if document is not None:
        yield from _set(document, _path(rest[1:]), variable, text)


def _path(parts: list[str]) -> Path:
    if parts[0] in BY_PARAMETER and len(parts) > 2:
        return (parts[0], f"{parts[1]}.{parts[2]}", *parts[3:])
    return tuple(parts)


def _set(document: Document, path: Path, variable: str, text: str) -> Iterator[Problem]:
    value, problems = yaml_lines.read(text, variable)
    if value is None or problems:
        yield from (Problem(Location(variable), dotted(path), problem.actual, problem.expected) for problem in problems)
        return
    if path == ("name",):
        yield Problem(
            Location(variable), "name", format_value(value.value), "no such variable: a recipe has the name of its file"
        )
        return
    known = document.value.get("parameters")
    if path[0] == "parameters" and isinstance(known, dict) and path[1] not in known:
        yield Problem(
            Location(variable), dotted(path), unknown("parameter", str(path[1]), known), f"one of {', '.join(known)}"
        )
        return
    try:
        document.set(path, value.value, Location(variable))
    except KeyError as error:
        yield Problem(
            Location(variable), dotted(path), "a field of a value", f"{dotted(error.args[0])} to be a section"
        )
