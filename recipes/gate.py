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
    """The gate's limits for one generation task. Higher values of its metric are better."""

    metric: Text | None = None
    """The name of one of the task's metrics; null for the first by name. Its values are from 0 to 1."""
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    """The lowest mean over the examples; null for no limit."""
    margin: Annotated[float, Field(gt=0, le=1)] | None = None
    """How far the candidate's mean may be below the champion's, judged at the end of the confidence interval of their
    paired difference; null for no comparison."""


class GateSection(RecipeSection):
    """The conditions for a candidate to become the champion. Losses are in bits per byte for texts, otherwise in
    nats."""

    margin: NotNegative = 0.02
    """How much worse than the champion the candidate may be, judged at the upper end of the confidence interval of
    their paired difference: a test of non-inferiority at the level `confidence`."""
    minimum_gain: NotNegative = 0.0
    """How much better than the champion the candidate must be in the mean, so that equal models do not alternate."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.975
    """The one-sided confidence: a candidate that is worse by exactly the margin passes with probability 1 -
    confidence."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of the bootstrap resamples, which makes the interval reproducible."""
    slice_margin: NotNegative | None = 0.2
    """How much worse the mean of one slice (a source, a language, a length) may be; null for no limit."""
    slice_examples: Count = 20
    """Slices with fewer examples than this are ignored."""
    at_most: dict[MOST, float] = Field(default={})
    """Upper limits for metrics of the candidate."""
    at_least: dict[Literal["accuracy", "continuation", "arithmetic"], float] = Field(default={})
    """Lower limits, from 0 to 1, for shares: of right predictions, and of right answers by task."""
    tasks: dict[Text, TaskLimit] = Field(default={})
    """Limits for the generation tasks of the suite, by their names."""
    leaks: Literal["refused", "reported"] = "refused"
    """What happens if the training documents contain more of the suite than its recipe allows (`contaminated`).
    refused: the candidate does not pass. reported: it passes, and the check states the share."""
    lineage: Literal["checked", "complete"] = "checked"
    """checked: snapshot, tokenizer and every byte of the checkpoint exist, and the diff of changed code is recorded.
    complete: in addition, all fields of the model's record are known; on a cluster, including the image's digest."""
    approval: Literal["none", "required"] = "none"
    """Whether a person must approve each candidate first: slipway models approve."""
    approval_hours: Positive = 168.0
    """Hours after which an approval expires."""
    cool_down_hours: NotNegative = 0.0
    """The fewest hours between two promotions. A rollback need not wait."""
