"""New recipes: files with every field and its meaning. Fields with a default are comments, ready to be edited."""

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from slipway.recipes.described import FieldDescription, fields, is_required, summary
from slipway.recipes.kinds import KINDS
from slipway.recipes.load import expected_name
from slipway.recipes.problems import InvalidRecipes, Location, Problem

WIDTH = 116
FOLDERS = {"dataset": "datasets", "suite": "suites", "training": "trainings", "sweep": "sweeps"}
"""The folder of each kind of recipe."""
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ./_-]*")
"""Text that YAML reads as a string without quotes."""
AMBIGUOUS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

DATASET: dict[str, Any] = {
    "description": "The sources of the Python standard library: put your own texts here",
    "owner": "team:data",
    "source": {"kind": "stdlib"},
    "tokenizer": {"vocab_size": 4096},
    "split": {"validation": 0.03},
    "shards": {"tokens": 400_000},
}
TRAINING: dict[str, Any] = {
    "description": "A small decoder: some minutes on two processor cores",
    "owner": "team:training",
    "model": {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "hidden": 384},
    "batch": {"sequences": 8, "length": 128, "micro": 4},
    "optimizer": {"learning_rate": 3e-3, "warmup_steps": 20},
    "run": {"steps": 400},
    "checkpoint": {"every": 80},
    "placement": {"nodes": {"min": 1, "max": 2}, "ranks_per_node": 1},
    "recovery": {"no_progress_seconds": 120, "failures_without_checkpoint": 3},
}
SUITE: dict[str, Any] = {"description": "Held-out documents, and questions on them"}
SWEEP: dict[str, Any] = {
    "description": "The optimiser of a training, by successive halving",
    "owner": "team:training",
    "space": {
        "optimizer.learning_rate": {"loguniform": [3e-4, 1e-2]},
        "optimizer.weight_decay": {"loguniform": [1e-3, 0.3]},
    },
    "sampler": "tpe",
    "seed": 0,
    "trials": 8,
    "parallel": 2,
    "scheduler": {"kind": "stopping", "rungs": [10, 20, 40], "eta": 2},
    "trial": {"run.steps": 40, "validation.every": 10, "validation.sequences": 32, "checkpoint.every": 40},
    "limits": {"failed_trials": 2, "retries": 1},
}


def write(folder: Path, kind: str, name: str) -> Path:
    """Write a new recipe of a kind (dataset, suite, training, sweep) into a folder of recipes; returns its path.

    A suite and a training refer to the folder's first dataset, a sweep to its first training. Raises ValueError for an
    invalid name, for a recipe that exists already, and if there is no recipe to refer to.
    """
    path = folder / FOLDERS[kind] / f"{name}.yaml"
    expected = expected_name(name)
    if expected:
        raise InvalidRecipes([Problem(Location(str(path)), "", f"the name {name!r}", expected)])
    if path.exists():
        raise ValueError(f"{path} exists already; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(kind, name, _referred(folder, kind)))
    return path


def text(kind: str, name: str, refers: str = "") -> str:
    """The text of a new recipe; `refers` is the dataset of a suite or training, or the training of a sweep."""
    values: dict[str, Any] = {
        "dataset": DATASET,
        "suite": {**SUITE, "dataset": refers},
        "training": {**TRAINING, "dataset": refers, "registered_model": name},
        "sweep": {**SWEEP, "training": refers},
    }[kind]
    schema = KINDS[FOLDERS[kind]]
    head = [
        f"A {kind} recipe, named {name} by its file. A line such as #name: shows the default of a "
        "field; remove the # to change it. `slipway recipes check` validates the recipe.",
        summary(schema),
    ]
    lines = [line for paragraph in head for line in _comment(paragraph, "")]
    return "\n".join([*lines, f"slipway: {schema.FORMAT}", "", *_section(schema, values, "")]).rstrip() + "\n"


def _referred(folder: Path, kind: str) -> str:
    """The first recipe in the folder to which a new recipe of this kind can refer."""
    needed = {"suite": "dataset", "training": "dataset", "sweep": "training"}.get(kind)
    if needed is None:
        return ""
    paths = sorted((folder / FOLDERS[needed]).glob("[!.]*.yaml"))
    usable = [path.stem for path in paths if needed == "dataset" or "\ncommand:" not in path.read_text()]
    if not usable:
        raise ValueError(
            f"{folder}: found no {needed} recipe for the {kind} to refer to; first: slipway recipes new {needed} NAME"
        )
    return usable[0]


def _section(section: type, values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The lines of a section's fields: those in `values` with their values, the others as comments."""
    for field in fields(section):
        yield from _comment(field.meaning, indent)
        if field.name not in values:
            assert not is_required(field.default), f"a new recipe needs a value for {field.name}"
            yield from _commented(field, indent)
        elif field.sections:
            yield f"{indent}{field.name}:"
            chosen = _chosen(field, values[field.name])
            yield from _section(chosen, values[field.name], f"{indent}  ")
            others = [other for other in field.sections if other is not chosen]
            yield from (line for other in others for line in _alternative(field, other, indent))
        elif isinstance(values[field.name], dict):
            yield f"{indent}{field.name}:"
            yield from (f"{indent}  {name}: {_flow(value)}" for name, value in values[field.name].items())
        else:
            yield f"{indent}{field.name}: {_flow(values[field.name])}"
        if not indent:
            yield ""


def _alternative(field: FieldDescription, other: type, indent: str) -> Iterator[str]:
    """An alternative to the section above, as a comment."""
    yield from _comment(f"Or instead: {summary(other)}", indent)
    instead = dataclasses.replace(field, sections=(other,), default=None)
    yield from _commented(instead, indent)


def _chosen(field: FieldDescription, value: Mapping[str, Any]) -> type:
    """The class of a section; if the field has several classes, `kind` decides."""
    return next((section for section in field.sections if _kind_of(section) == value.get("kind")), field.sections[0])


def _kind_of(section: type) -> str | None:
    """The `kind` that a recipe writes for this section, or None if the section has no kinds."""
    return next((field.choices[0] for field in fields(section) if field.name == "kind" and field.choices), None)


def _commented(field: FieldDescription, indent: str) -> Iterator[str]:
    """A field as a comment: its default, or all fields of a section with their defaults."""
    if not field.sections:
        alone = is_required(field.default) and len(field.choices) == 1
        yield f"{indent}#{field.name}: {field.choices[0] if alone else _flow(field.default)}"
        return
    yield f"{indent}#{field.name}:"
    for member in fields(field.sections[0]):
        default = _of(field.default, member)
        yield from (f"{indent}#{line}" for line in _comment(member.meaning, "  "))
        inner = dataclasses.replace(member, default=default)
        yield from (f"{indent}#  {line.removeprefix('#')}" for line in _commented(inner, ""))


def _of(section: Any, field: FieldDescription) -> Any:
    """The default of a field within the default of its section."""
    if section is None or is_required(section):
        return field.default
    return getattr(section, field.name)


def _comment(text: str, indent: str) -> list[str]:
    prefix = f"{indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_on_hyphens=False)


def _flow(value: Any) -> str:
    """A value as YAML writes it on one line."""
    if is_required(value):
        return "..."
    if isinstance(value, pydantic.BaseModel):
        return _flow(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in AMBIGUOUS:
        return value
    return json.dumps(value, ensure_ascii=False)
