"""Settings files: YAML whose first line names the format, validated strictly, with the line of every problem."""

from pathlib import Path
from typing import Any, TypeVar

from slipway.recipes import yaml_lines
from slipway.recipes.parts import RecipeSection
from slipway.recipes.problems import InvalidRecipes, Location, Problem, RecipeFault, dotted, format_value
from slipway.recipes.strict import RefusedValue, validate
from slipway.trainer.base import regular_file

Settings = TypeVar("Settings", bound=RecipeSection)


def load(path: Path, kind: type[Settings], format: str, what: str) -> Settings:
    """The settings in a file; `what` describes them in messages. Raises InvalidRecipes with all problems and lines."""
    file = str(path)
    try:
        data = regular_file.read(path)
    except OSError as error:
        expected = f"{what} (a file that begins slipway: {format})"
        raise InvalidRecipes([Problem(Location(file), "", str(error.strerror), expected)]) from None
    document, problems = yaml_lines.read(data, file)
    if document is None or problems:
        raise InvalidRecipes(problems)
    faults = _header_faults(document.value, format)
    if not faults:
        try:
            return validate(
                kind, {name: field_value for name, field_value in document.value.items() if name != "slipway"}
            )
        except RefusedValue as refused:
            faults = refused.faults
    raise InvalidRecipes(
        Problem(document.location_of(fault.path), dotted(fault.path), fault.actual, fault.expected) for fault in faults
    )


def _header_faults(value: Any, format: str) -> list[RecipeFault]:
    if not isinstance(value, dict):
        return [RecipeFault((), format_value(value), f"settings that begin slipway: {format}")]
    header = value.get("slipway")
    if header == format:
        return []
    return [RecipeFault(("slipway",), "nothing" if header is None else format_value(header), format)]
