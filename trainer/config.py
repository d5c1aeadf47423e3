"""The resolved configuration of one training: everything that decides its numbers, and where it runs.

One JSON file holds it and there are no other knobs. The sections are plain frozen dataclasses: recipes
validate the same ones, so a field is described and checked in one place. `placement` says where things
lie and is not part of a training's identity; all the rest is.
"""

import dataclasses
import json
import math
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FORMAT = "slipway.training-config/1"


class Invalid(ValueError):
    """A value that cannot be trained with; `field` is its dotted name, as written in the file."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def require(condition: bool, field: str, message: str) -> None:
    """Raise `Invalid` for `field` unless `condition` holds."""
    if not condition:
        raise Invalid(field, message)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

    layers: int
    width: int
    """Features of the residual stream."""
    heads: int
    """Query heads; each has width / heads features."""
    kv_heads: int
    """Key and value heads; each serves heads / kv_heads query heads."""
    hidden: int
    """Features inside the SwiGLU feed-forward block."""
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "hidden", "rope_base"):
            require(getattr(self, name) > 0, name, "expected a number above 0")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")
        require(self.width // self.heads % 2 == 0, "heads", "expected an even number of features a head")
        require(self.heads % self.kv_heads == 0, "kv_heads", f"expected a divisor of heads ({self.heads})")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimiser step sees, in sequences; the same for any number of ranks."""

    sequences: int
    """Sequences a step over all ranks (the global batch)."""
    length: int
    """Tokens a sequence."""
    micro: int
    """Sequences a rank puts through the model at once; gradients accumulate over the rest."""

    def __post_init__(self) -> None:
        for name in ("sequences", "length", "micro"):
            require(getattr(self, name) > 0, name, "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """AdamW with linear warm-up and cosine decay."""

    learning_rate: float
    warmup_steps: int = 0
    final_fraction: float = 0.1
    """The last step's learning rate as a share of the highest."""
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest gradient norm; longer gradients are scaled down to it."""

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "learning_rate", "expected a number above 0")
        require(self.warmup_steps >= 0, "warmup_steps", "expected 0 or more")
        require(0 <= self.final_fraction <= 1, "final_fraction", "expected 0 to 1")
        require(0 <= self.beta1 < 1, "beta1", "expected 0 or more, below 1")
        require(0 <= self.beta2 < 1, "beta2", "expected 0 or more, below 1")
        require(self.weight_decay >= 0, "weight_decay", "expected 0 or more")
        require(self.clip > 0, "clip", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Run:
    """How long, from which seed, in which arithmetic."""

    steps: int
    seed: int = 0
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16 under autocast and keeps fp32 weights."""
    shuffle_shards: int = 64
    """Shards whose samples are shuffled together: more shuffle better and keep more files in use at a time."""

    def __post_init__(self) -> None:
        require(self.steps > 0, "steps", "expected a number above 0")
        require(0 <= self.seed < 2**63, "seed", "expected 0 to 2^63 - 1")
        require(self.shuffle_shards > 0, "shuffle_shards", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    every: int
    """Steps between two checkpoints; the last step always leaves one."""

    def __post_init__(self) -> None:
        require(self.every > 0, "every", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Validation inside the run, for early stopping; evaluation proper is a process of its own."""

    every: int = 0
    """Steps between two validations; 0 for none."""
    sequences: int = 64
    """How many sequences of the validation split are looked at, always the same ones."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "every", "expected 0 or more")
        require(self.sequences > 0, "sequences", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Init:
    """The weights that the first step starts from instead of drawn ones; `placement.init` is their folder."""

    layout: Literal["checkpoint", "huggingface"]
    """A checkpoint of a training, or a model in the Hugging Face Llama layout."""
    digest: str
    """What the folder must hold; see `trainer.initial.digest_of`."""

    def __post_init__(self) -> None:
        fits = len(self.digest) == 64 and set(self.digest) <= set("0123456789abcdef")
        require(fits, "digest", "expected 64 hex digits")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a training lies and runs. ``{node}`` in `nvme` is replaced by the name of the node."""

    store: str
    """The training's durable folder: specification, claims, commits, ledger, heartbeats."""
    durable: str
    """The durable tier: snapshots, shards, checkpoints."""
    nvme: str
    """The node's own fast disk, where the shards are staged."""
    staging: Literal["before", "streaming"] = "before"
    """Whether all shards are staged before the first step, or while training goes on, in the order of their need."""
    init: str = ""
    """The folder of the initial weights, where the training has a section `init`."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training, resolved: nothing is left to look up but the files it names."""

    training: str
    """The training's id."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    model: Model
    batch: Batch
    optimiser: Optimiser
    run: Run
    checkpoint: Checkpoint
    placement: Placement
    validation: Validation = field(default_factory=Validation)
    init: Init | None = None

    def __post_init__(self) -> None:
        require(self.init is None or bool(self.placement.init), "placement.init", "expected the folder of `init`")


SECTIONS: dict[str, type] = {
    "model": Model,
    "batch": Batch,
    "optimiser": Optimiser,
    "run": Run,
    "checkpoint": Checkpoint,
    "validation": Validation,
}
"""The sections that decide a training's numbers; a recipe has the same, under the same names.

`init` decides them too: a recipe says there where the weights are to be found, and not what they are.
"""


def load(path: Path) -> Config:
    """Read a resolved configuration. Raises ValueError naming the file, the field and what is expected."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: field format: expected {FORMAT!r}")
    try:
        config: Config = _build(Config, document, "")
        return config
    except Invalid as error:
        raise ValueError(f"{path}: field {error.field}: {error}") from None


def dump(config: Config) -> dict[str, Any]:
    """The JSON value of `config`; `load` reads it back equal."""
    return {"format": FORMAT, **dataclasses.asdict(config)}


def _build(kind: Any, value: Any, at: str) -> Any:
    """`value` as an instance of the dataclass `kind`. Raises Invalid with the dotted field name."""
    require(isinstance(value, dict), at.removesuffix("."), f"found {value!r}, expected a section")
    fields = {each.name: each for each in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    for name in value:
        require(name in fields, f"{at}{name}", f"unknown; expected one of {', '.join(fields)}")
    for name, each in fields.items():
        optional = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        require(name in value or optional, f"{at}{name}", "missing")
    try:
        return kind(**{name: _convert(hints[name], item, f"{at}{name}") for name, item in value.items()})
    except Invalid as error:
        if not at or error.field.startswith(at):
            raise
        raise Invalid(f"{at}{error.field}", str(error)) from None


def _convert(kind: Any, value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, f"{at}.")
    if type(None) in typing.get_args(kind):
        return None if value is None else _convert(typing.get_args(kind)[0], value, at)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        require(value in choices, at, f"found {value!r}, expected one of {', '.join(map(repr, choices))}")
        return value
    accepted = (int, float) if kind is float else (kind,)
    fits = isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)
    require(fits, at, f"found {value!r}, expected {kind.__name__}")
    if kind is not float:
        return value
    require(math.isfinite(value), at, f"found {value!r}, expected a finite number")
    return float(value)
