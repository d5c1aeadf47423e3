"""The model card: a description of a registered version, rendered from its record and the gate's judgement.

It contains only recorded facts, and lists the fields that are unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.resources.promotions import model_record as records
from slipway.resources.promotions.model_record import FIELDS, ModelRecord
from slipway.resources.promotions.promotion import Judgement, Promotion

LONGEST = 300
"""The most characters of a value in a table."""


def of(record: ModelRecord, judgement: Judgement | None, promotions: list[Promotion] | None = None) -> str:
    """The card in Markdown."""
    lines = [f"# {record.model}", "", _in_short(record), ""]
    for section in FIELDS:
        values = getattr(record, section)
        if values:
            lines += [f"## {section.capitalize()}", "", *_table(values), ""]
    if judgement is not None:
        lines += ["## Judgement", "", *_judged(judgement), ""]
    if promotions:
        lines += ["## Deployments", "", *(f"- {_deployment(promotion)}" for promotion in promotions), ""]
    unknown = records.not_known(record)
    return "\n".join([*lines, "## Not known", "", ", ".join(f"`{field}`" for field in unknown) or "nothing", ""])


def _in_short(record: ModelRecord) -> str:
    """A summary of the model in a sentence."""
    data = record.data
    outcome = record.outcome
    state = record.state
    bits = outcome.get("bits_per_byte")
    reached = f"{bits:.4g} bits per byte" if bits else f"loss {outcome['loss']:.4g}" if outcome.get("loss") else ""
    size = f"{state['bytes'] / 1e6:,.1f} MB on disk" if state.get("bytes") else ""
    facts = [f"on dataset {data.get('dataset', '?')}", reached and f"{reached} on its validation split", size]
    return f"Checkpoint `{record.manifest}`: step {data.get('step', '?')} {', '.join(filter(None, facts))}."


def _table(values: Mapping[str, Any]) -> list[str]:
    rows = [f"| {name} | {_cell(value)} |" for name, value in _leaves("", values)]
    return ["| | |", "| --- | --- |", *rows]


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each known value with its path. Nested sections are flattened, because a long cell would be cut."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _leaves(f"{name}.{key}" if name else str(key), inner)
        case [Mapping(), *_]:
            for number, inner in enumerate(value, 1):
                yield from _leaves(f"{name}.{number}", inner)
        case None | "" | []:
            return
        case list():
            yield name, ", ".join(map(str, value))
        case _:
            yield name, value


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _judged(judgement: Judgement) -> list[str]:
    compared = f"against champion `{judgement.champion[:12]}`" if judgement.champion else "without a champion"
    figures: Mapping[str, Mapping[str, Any]] = judgement.figures.get("checks", {})
    return [
        f"Judged by {judgement.by}, {compared}.",
        "",
        *(f"- {_check(name, passed, figures.get(name, {}))}" for name, passed in judgement.checks.items()),
        *([f"- undecided: {judgement.undecided}"] if judgement.undecided else []),
    ]


def _check(name: str, passed: bool, own: Mapping[str, Any]) -> str:
    """One check with the values that it compared."""
    compared = ", ".join(f"{key} {_cell(value)}" for key, value in _leaves("", {**own, "note": ""}))
    why = "; ".join(filter(None, (str(own.get("note", "")), compared)))
    return f"{name}: {'passed' if passed else 'not passed'}{f' ({why})' if why else ''}"


def _deployment(promotion: Promotion) -> str:
    what = f"version {promotion.version} became champion" if promotion.version else "the champion was demoted"
    return f"{what}, by {promotion.by}{f': {promotion.why}' if promotion.why else ''}"
