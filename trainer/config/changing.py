"""Changing: a configuration with some of its fields set otherwise, and what a change can reach while a training runs.

A change names fields as recipes do, `optimizer.learning_rate`. What a checkpoint's tensors and its place in the order
of the samples depend on is not changed in mid-training: such a change is a training of its own that starts from the
weights (`init`).
"""

from collections.abc import Mapping
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid, require
from slipway.trainer.config import resolved
from slipway.trainer.config.mix import Mix
from slipway.trainer.config.resolved import NUMBERS, OPERATION, SECTIONS, Config

IN_PLACE = frozenset(
    {
        *(
            f"optimizer.{name}"
            for name in (
                *("learning_rate", "schedule", "warmup_steps", "final_fraction", "decay_fraction"),
                *("clip", "weight_decay", "beta1", "beta2", "momentum"),
            )
        ),
        "run.steps",
        *("checkpoint.every", "validation.every", "observation.window_steps", "observation.compare_steps"),
        *(f"storage.{tier}.minutes" for tier in ("nvme", "durable", "backup")),
        *(f"recovery.{name}" for name in ("skips", "skip_steps", "spike_sigmas", "straggler_sigmas")),
        *("storage.cost_share", "storage.failures_per_rank_day"),
        *("hardware.timeout_seconds", "hardware.step_timeout_seconds"),
    }
)
"""The fields that a running training takes over between two steps, without a restart."""

_SHAPES = "the checkpoint has the tensors of the former value"
_ORDER = "the place in the order of the samples depends on it"
_STATE = "the checkpoint has the optimiser's state of the former value"
FIXED: Mapping[str, str] = {
    "model": _SHAPES,
    "mix": f"{_ORDER}; a branch can set phases that begin at its step or later",
    "init": "a continuation has the weights of its checkpoint",
    "dataset": _ORDER,
    "batch.sequences": _ORDER,
    "batch.length": _ORDER,
    "run.seed": _ORDER,
    "run.shuffle_shards": _ORDER,
    "run.freeze": _STATE,
    "optimizer.kind": _STATE,
    "communication.compression": "each rank may have state of its own of the former value",
    "communication.powersgd_rank": "each rank has state of its own of the former value",
    "communication.local_steps": "each rank may have state of its own of the former value",
}
"""What no continuation with the full state can change, and why."""
REMEDY = "to start from its weights alone, use `init` in a recipe"


def check_continues(fields: Mapping[str, Any], sections: Mapping[str, Any], step: int | None = None) -> None:
    """Raises Invalid for a field that a continuation with the full state of `sections` cannot change.

    `step` is where it begins: a mix may be another one from there on. Without it, no mix can be another one.
    """
    named = {name.split(".")[0] for name in fields} & SECTIONS.keys()
    merged_sections = {
        **sections,
        **{section: _checked(section, SECTIONS[section], sections.get(section, {})) for section in named},
    }
    of_mix = {name: value for name, value in fields.items() if name.split(".")[0] == "mix"}
    if of_mix and step is not None and sections.get("mix"):
        _check_same_samples(sections, with_fields(sections, of_mix), step)
        fields = {name: value for name, value in fields.items() if name not in of_mix}
    for name, value in fields.items():
        parts = name.split(".")
        fixed = next((candidate for candidate in (parts[0], ".".join(parts[:2])) if candidate in FIXED), "")
        current = value_of(merged_sections, name)
        if fixed and (current is None or value != current):
            was = f", expected {current!r}, as it was" if current is not None else ", expected no change"
            raise Invalid(name, f"found {value!r}{was}: {FIXED[fixed]}; {REMEDY}")


def _check_same_samples(sections: Mapping[str, Any], changed: Mapping[str, Any], step: int) -> None:
    """Raises Invalid for a mix with which the first `step` steps would have read other samples."""
    before, now = (codec.build(Mix, settings["mix"], "mix") for settings in (sections, changed))
    unknown = sorted(set(now.names) - set(before.names))
    known = f"expected the datasets that the training began with: {', '.join(before.names)}"
    require(not unknown, "mix", f"found {', '.join(unknown)}, {known}")
    expected = f"expected the same weights in the first {step} steps; phases may begin after step {step} or later"
    require(now.until(step) == before.until(step), "mix", f"found other weights before step {step}, {expected}")


def value_of(sections: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted field; None where it is not there."""
    value: Any = sections
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def with_fields(sections: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of a configuration, as JSON has them, with these fields set. Raises Invalid with the dotted field."""
    kinds = {**NUMBERS, **OPERATION}
    out = dict(sections)
    for name in fields:
        section = name.split(".")[0]
        known = section in kinds and "." in name
        require(known, name, f"unknown; expected <section>.<field>, the section one of {', '.join(kinds)}")
        has = section != "mix" or bool(sections.get("mix"))
        require(has, name, "expected a training on several datasets: this one has no mix")
        out[section] = _checked(section, kinds[section], out.get(section, {}))
    for name, value in fields.items():
        _set(out, name, value)
    for section in {name.split(".")[0] for name in fields}:
        out[section] = _checked(section, kinds[section], out[section])
    return out


def changed(config: Config, fields: Mapping[str, Any]) -> Config:
    """A configuration with these fields set. Raises Invalid with the dotted field."""
    sections = {name: value for name, value in resolved.dump(config).items() if name != "format"}
    return codec.build(Config, with_fields(sections, fields))


def check_steps(steps: Any, done: int, local_steps: int) -> None:
    """Raises Invalid for a number of steps that a training which has done so many cannot have from then on."""
    prefix = f"found {steps!r}, expected"
    require(isinstance(steps, int) and steps > done, "run.steps", f"{prefix} more than {done}, the step that is done")
    require(local_steps == 1, "run.steps", f"{prefix} no change: the last round of local updates ends with it")


def check_in_place(config: Config, fields: Mapping[str, Any], done: int) -> None:
    """Raises Invalid for a change that a running training cannot take over, which has done so many steps."""
    for name, value in fields.items():
        if name == "run.steps":
            check_steps(value, done, config.communication.local_steps)
            limited = config.mix is not None and config.mix.passes_at_most is not None and value > config.run.steps
            require(
                not limited,
                name,
                f"found {value}, expected {config.run.steps} at most: mix.passes_at_most was held "
                "to these; a branch is held to it anew",
            )
        require(name in IN_PLACE, name, f"found {value!r}, expected one of {', '.join(sorted(IN_PLACE))}")
        if name == "validation.every" and not config.validation.every and value:
            raise Invalid(name, f"found {value!r}, expected 0: the training holds no shards for a validation")


def _checked(section: str, kind: Any, value: Any) -> Any:
    built = codec.build(kind, value, section)
    return built.section() if hasattr(built, "section") else codec.plain(built)


def _set(sections: dict[str, Any], name: str, value: Any) -> None:
    """Set a dotted field in nested sections, of which those on the way are copied."""
    *above, last = name.split(".")
    section: dict[str, Any] = sections
    for part in above:
        below = section.get(part)
        require(isinstance(below, dict), name, f"unknown; {part} has no fields")
        assert isinstance(below, dict)
        section[part] = section = dict(below)
    section[last] = value
