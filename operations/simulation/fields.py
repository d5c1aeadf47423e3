"""Fields of a scenario as a person gives them: FIELD=VALUE."""

from collections.abc import Sequence
from dataclasses import fields

from slipway.operations.simulation.settings import Scenario
from slipway.trainer.base.invalid import Invalid

KINDS = {each.name: each.type for each in fields(Scenario) if each.name not in ("gpus", "causes")}
TRUTHS = {"true": True, "false": False}


def scenario(gpus: int, given: Sequence[str]) -> Scenario:
    """The scenario with these fields. Raises ValueError for a field that it does not have, or a wrong value."""
    values: dict[str, float | int | bool] = {}
    for each in given:
        name, value = _value(each)
        if name in values:
            raise ValueError(f"{each}: found the field {name!r} twice, expected it once")
        values[name] = value
    try:
        return Scenario(gpus=gpus, **values)  # type: ignore[arg-type]
    except Invalid as error:
        found = gpus if error.field == "gpus" else values.get(error.field, getattr(Scenario, error.field, ""))
        raise ValueError(f"{error.field}: found {found}, {error}") from None


def _value(given: str) -> tuple[str, float | int | bool]:
    name, _, text = given.partition("=")
    if name not in KINDS:
        raise ValueError(f"{given}: found the field {name!r}, expected one of {', '.join(KINDS)}")
    if KINDS[name] in (bool, "bool"):
        if text not in TRUTHS:
            raise ValueError(f"{given}: found {text!r}, expected true or false")
        return name, TRUTHS[text]
    try:
        return name, int(text) if KINDS[name] in (int, "int") else float(text)
    except ValueError:
        kind = "a whole number" if KINDS[name] in (int, "int") else "a number"
        raise ValueError(f"{given}: found {text!r}, expected {kind}") from None
