"""A suite's recipe: the fixed set of examples that models are measured on, and compared with each other.

A suite is made once and then stays as it is: `edition` makes another one. Its examples are texts, not tokens, so that
models with different tokenizers are measured on the same ones.
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
    """The most documents; of more, those with the lowest hashes are taken, which stay the same as the dataset grows."""
    longest_kilobytes: Annotated[float, Field(gt=0)] = 256.0
    """Kilobytes of text in the longest document that is taken."""
    common: Count = 10
    """A passage of 13 words in more training documents than this is boilerplate, such as a licence, and no leak."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of an example's passages, between 0 and 1, from which on even boilerplate is a leak."""


class ContinuationSection(RecipeSection):
    """Multiple choice made from the held-out documents: which of four passages is the one that goes on here?"""

    examples: Count = 200
    """How many questions."""
    words: Annotated[int, Field(ge=4)] = 24
    """Words of each passage, of the prompt and of each answer."""


class ArithmeticSection(RecipeSection):
    """Multiple choice made of numbers: the sum of two numbers below `limit`, with the three nearest wrong answers."""

    examples: Count = 200
    """How many questions."""
    limit: Annotated[int, Field(ge=10)] = 100
    """The numbers are below this."""


class GenerationSection(RecipeSection):
    """Tasks that a model of texts answers by writing, each example right or wrong or scored by the task's metrics."""

    tasks: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Ours (copying, counting, adding), or those of lm-evaluation-harness where the jobs have it."""
    examples: Count = 100
    """Of each task, at most."""
    include: Text | None = None
    """A folder of tasks of one's own, as YAML files of lm-evaluation-harness, under the path by which jobs see it."""
    hours: Annotated[float, Field(gt=0)] = 6.0
    """So long all tasks of one model may take; then the job is ended, and has failed."""

    @field_validator("tasks")
    @classmethod
    def _are_names(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", task) for task in tasks):
            raise ValueError("expected names of tasks: letters, digits, _, ., + and -")
        if len(set(tasks)) < len(tasks):
            raise ValueError("expected each task once")
        return tasks


class SuiteRecipe(Recipe):
    """An evaluation set: held-out documents, questions with one right answer of four, and tasks to be written."""

    FORMAT: ClassVar = "suite/1"

    description: Text = "What models are measured on"
    owner: str = "team:evaluation"
    dataset: Text
    """The dataset whose documents are taken: the name of a file in datasets/."""
    split: Literal["validation", "all"] = "validation"
    """Which of its documents: those held out, or all, of a dataset that nothing is trained on."""
    held_out: HeldOutSection = HeldOutSection()
    continuation: ContinuationSection | None = ContinuationSection()
    """Questions on the documents; null for none."""
    arithmetic: ArithmeticSection | None = ArithmeticSection()
    """Questions on numbers; null for none."""
    generation: GenerationSection | None = None
    """Tasks that candidates answer by writing; null for none. They are no part of the suite's content."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of the questions: the same seed, documents and recipe give the same suite, byte for byte."""
    edition: Count = 1
    """A number to raise for a new suite, made from the dataset's present documents."""
    resources: Amounts = Field(default_factory=dict)
    """What the pod that makes the suite gets on a cluster, such as `memory: 32Gi`; the platform's settings decide the
    rest."""
    contaminated: Share = 0.0
    """The largest share of examples that may share a passage with a training document, for the check to pass."""

    def content(self) -> dict[str, object]:
        """The fields that decide the suite's examples, as JSON has them."""
        return self.model_dump(mode="json", exclude={"description", "owner", "resources", "contaminated", "generation"})
