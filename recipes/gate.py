"""The section `gate` of a training: the policy by which its candidates become the champion."""

from typing import Annotated, Literal

from pydantic import Field

from slipway.recipes.parts import Count, RecipeSection, Text

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
MOST = Literal[
    "loss", "perplexity", "bits_per_byte", "calibration_error", "milliseconds_per_prediction", "weights_gigabytes"
]


class TaskLimit(RecipeSection):
    """What the gate expects of one generation task; of its metric, more is better."""

    metric: Text | None = None
    """The metric, as the task's figures name it; null for the first by name. Its values are from 0 to 1."""
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    """The mean over the examples must not be below this; null for no floor."""
    margin: Annotated[float, Field(gt=0, le=1)] | None = None
    """By how much the candidate's mean may be lower than the champion's at most, at the end of the interval of their
    paired difference; null for no comparison."""


class GateSection(RecipeSection):
    """What a candidate must be to become the champion. Losses are in bits per byte of text, or else in nats."""

    margin: NotNegative = 0.02
    """By how much the candidate may be worse than the champion at most, at the upper end of the interval of their
    paired difference: with `confidence`, it is not worse by more than this (non-inferiority)."""
    minimum_gain: NotNegative = 0.0
    """By how much the candidate must be better than the champion in the mean, so that equals do not take turns."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.975
    """Of the upper end alone: a candidate that is worse by the margin passes with the probability 1 - confidence."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of the resamples; with it the interval is the same each time."""
    slice_margin: NotNegative | None = 0.2
    """By how much the mean of one slice (a source, a language, a length) may be worse; null for any."""
    slice_examples: Count = 20
    """Slices with fewer examples do not count."""
    at_most: dict[MOST, float] = Field(default={})
    """Figures of the candidate that must not be above a number."""
    at_least: dict[Literal["accuracy", "continuation", "arithmetic"], float] = Field(default={})
    """Shares, from 0 to 1, that must not be below a number: right predictions, and right answers by task."""
    tasks: dict[Text, TaskLimit] = Field(default={})
    """Limits for the generation tasks of the suite, by their names."""
    leaks: Literal["refused", "reported"] = "refused"
    """What becomes of a candidate whose training documents give away more of the suite than the suite's recipe allows
    (`contaminated`). refused: it does not pass. reported: it passes, and the check says how much."""
    lineage: Literal["checked", "complete"] = "checked"
    """checked: snapshot, tokenizer and every byte of the checkpoint are there, and changed code has its difference on
    record. complete: all fields of the model's record are known too; on a cluster, with the image's digest."""
    approval: Literal["none", "required"] = "none"
    """Whether a person must approve each candidate first: slipway models approve."""
    approval_hours: Positive = 168.0
    """After so many hours an approval counts no more."""
    cool_down_hours: NotNegative = 0.0
    """So many hours pass between two promotions at least; a rollback needs none."""
