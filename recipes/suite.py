"""A suite's recipe: a fixed set of evaluation examples, on which models are measured and compared.

A suite is made once and does not change; a higher `edition` makes a new one. Its examples are texts and not tokens, so
that models with different tokenizers are measured on the same examples.
"""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from slipway.recipes.kubernetes import Amounts
from slipway.recipes.parts import Count, Recipe, RecipeSection, Text

Share = Annotated[float, Field(ge=0, le=1)]


class HeldOutSection(RecipeSection):
    """The held-out documents whose loss is measured."""

    examples: Count = 2000
    """The most documents. If there are more, those with the lowest hashes are taken, so the choice is stable as the
    dataset grows."""
    longest_kilobytes: Annotated[float, Field(gt=0)] = 256.0
    """The most kilobytes of text in a document; longer documents are left out."""
    common: Count = 10
    """A passage of 13 words in more training documents than this is boilerplate, such as a licence, and not a leak."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """If the training documents contain at least this share of an example's passages (0 to 1), boilerplate counts as
    well."""


class ContinuationSection(RecipeSection):
    """Multiple choice made from the held-out documents: which of four passages continues the prompt?"""

    examples: Count = 200
    """The number of questions."""
    words: Annotated[int, Field(ge=4)] = 24
    """The number of words in the prompt and in each answer."""


class ArithmeticSection(RecipeSection):
    """Multiple choice on sums of two numbers below `limit`: the right answer and the three nearest wrong ones."""

    examples: Count = 200
    """The number of questions."""
    limit: Annotated[int, Field(ge=10)] = 100
    """The numbers are below this."""


class GenerationSection(RecipeSection):
    """Tasks that a model answers by generating text. Each example is right or wrong, or scored by the task's
    metrics."""

    tasks: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Names of tasks: Slipway's own (copying, counting, adding), or those of lm-evaluation-harness if the jobs have
    it."""
    examples: Count = 100
    """The most examples of each task."""
    include: Text | None = None
    """A folder with your own tasks as YAML files of lm-evaluation-harness, by its path inside the jobs."""
    hours: Annotated[float, Field(gt=0)] = 6.0
    """The time limit for all tasks of one model, in hours. After it the job is stopped and counts as failed."""

    @field_validator("tasks")
    @classmethod
    def _are_names(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", task) for task in tasks):
            raise ValueError("expected names of tasks: letters, digits, _, ., + and -")
        if len(set(tasks)) < len(tasks):
            raise ValueError("expected each task once")
        return tasks


class SuiteRecipe(Recipe):
    """An evaluation set: held-out documents, questions with one right answer of four, and generation tasks."""

    FORMAT: ClassVar = "suite/1"

    description: Text = "What models are measured on"
    owner: str = "team:evaluation"
    dataset: Text
    """The dataset whose documents are taken: the name of a file in datasets/."""
    split: Literal["validation", "all"] = "validation"
    """Which of its documents to take: the held-out ones, or all of a dataset that no training uses."""
    held_out: HeldOutSection = HeldOutSection()
    continuation: ContinuationSection | None = ContinuationSection()
    """Questions about the documents; null for none."""
    arithmetic: ArithmeticSection | None = ArithmeticSection()
    """Questions about sums; null for none."""
    generation: GenerationSection | None = None
    """Tasks that candidates answer by generating text; null for none. They are not part of the suite's content."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of the questions: the same seed, documents and recipe give the same suite, byte for byte."""
    edition: Count = 1
    """Raise this number to make a new suite from the dataset's current documents."""
    resources: Amounts = Field(default_factory=dict)
    """The resources of the pod that makes the suite on a cluster, such as `memory: 32Gi`. The platform's settings
    decide the resources that are not named here."""
    contaminated: Share = 0.0
    """The check for leaks fails if more than this share of the examples shares a passage with a training document."""

    def content(self) -> dict[str, object]:
        """The fields that decide the suite's examples, as JSON."""
        return self.model_dump(mode="json", exclude={"description", "owner", "resources", "contaminated", "generation"})
