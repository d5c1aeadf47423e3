"""Settings in a YAML file whose first line names its format: read strictly, with every problem and its line."""

from pathlib import Path
from typing import Any, TypeVar

from slipway.recipes import yaml_lines
from slipway.recipes.parts import RecipeSection
from slipway.recipes.problems import InvalidRecipes, Place, Problem, RecipeFault, dotted, shown
from slipway.recipes.strict import RefusedValue, validate
from slipway.trainer.base import regular_file

Settings = TypeVar("Settings", bound=RecipeSection)


def load(path: Path, kind: type[Settings], format: str, what: str) -> Settings:
    """The settings in a file; `what` they are, for a message. Raises InvalidRecipes with every problem and its line."""
    file = str(path)
    try:
        data = regular_file.read(path)
    except OSError as error:
        wanted = f"{what} (a file that begins slipway: {format})"
        raise InvalidRecipes([Problem(Place(file), "", str(error.strerror), wanted)]) from None
    document, problems = yaml_lines.read(data, file)
    if document is None or problems:
        raise InvalidRecipes(problems)
    faults = _header_faults(document.value, format)
    if not faults:
        try:
            return validate(kind, {name: each for name, each in document.value.items() if name != "slipway"})
        except RefusedValue as refused:
            faults = refused.faults
    raise InvalidRecipes(
        Problem(document.place(fault.path), dotted(fault.path), fault.found, fault.expected) for fault in faults
    )


def _header_faults(value: Any, format: str) -> list[RecipeFault]:
    if not isinstance(value, dict):
        return [RecipeFault((), shown(value), f"settings that begin slipway: {format}")]
    header = value.get("slipway")
    if header == format:
        return []
    return [RecipeFault(("slipway",), "nothing" if header is None else shown(header), format)]
