"""Template fields: check a pod template against the Kubernetes client's models, since a cluster drops unknown fields.

Imported only to check a patch, because the models take a second to load.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.client import Configuration, models

QUANTITIES = ("limits", "requests", "overhead")
"""Mappings whose values are quantities, which may be written as numbers."""
PLAIN: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "quantity": ((str, int, float), "an amount"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "datetime": (str, "a time"),
    "object": ((str, int), "text or a whole number"),
}


def problems_of_template(template: Mapping[str, Any], where: str) -> list[str]:
    """The problems of a pod template, one message per field; each message begins with `where`."""
    return list(_problems(template, "V1PodTemplateSpec", where))


def _problems(value: Any, kind: str, where: str) -> Iterator[str]:
    """`kind` is a type as in the models' `openapi_types`."""
    if kind in PLAIN:
        types, expected = PLAIN[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
            yield f"{where}: found {value!r}, expected {expected}"
    elif kind.startswith("list["):
        if not isinstance(value, list):
            yield f"{where}: found {value!r}, expected a list"
            return
        for index, item in enumerate(value):
            yield from _problems(item, kind[len("list[") : -1], f"{where}[{index}]")
    elif not isinstance(value, Mapping):
        yield f"{where}: found {value!r}, expected a mapping"
    elif kind.startswith("dict["):
        for key, item in value.items():
            yield from _problems(item, kind[len("dict[str, ") : -1], f"{where}.{key}")
    else:
        yield from _problems_of_fields(value, getattr(models, kind), where)


def _problems_of_fields(value: Mapping[str, Any], model: Any, where: str) -> Iterator[str]:
    kinds = {field: model.openapi_types[attribute] for attribute, field in model.attribute_map.items()}
    for field, item in value.items():
        if field not in kinds:
            yield f"{where}.{field}: found an unknown field, expected one of {', '.join(sorted(kinds))}"
        elif item is not None:
            kind = kinds[field].replace("str]", "quantity]") if field in QUANTITIES else kinds[field]
            yield from _problems(item, kind, f"{where}.{field}")
    yield from (
        f"{where}.{field}: found nothing, expected a value" for field in _required(model) if value.get(field) is None
    )


@functools.cache
def _required(model: Any) -> tuple[str, ...]:
    """The required fields of a model, which reject None."""
    unchecked = Configuration()
    unchecked.client_side_validation = False
    blank = model(local_vars_configuration=unchecked)
    blank.local_vars_configuration = Configuration()

    def refuses_none(attribute: str) -> bool:
        try:
            setattr(blank, attribute, None)
        except ValueError:
            return True
        return False

    return tuple(field for attribute, field in model.attribute_map.items() if refuses_none(attribute))
