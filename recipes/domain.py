"""The values that a parameter of a sweep may take, and the condition under which the parameter exists."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from slipway.recipes.parts import RecipeSection
from slipway.trainer.base.invalid import require

KINDS = ("loguniform", "uniform", "randint", "choice")
MOST_STEPS = 100_000
"""The most values of an interval with steps, because all of them are listed."""
LARGEST = 1e30
"""The largest absolute value of an interval's end: samplers multiply and divide the ends."""
SMALLEST = 1e-30
"""The smallest end of a `loguniform` interval, for the same reason."""


class Domain(RecipeSection):
    """The values that a parameter of a sweep may take: exactly one of loguniform, uniform, randint and choice."""

    loguniform: tuple[float, float] | None = None
    """[low, high]: a number between low and high, whose logarithm is drawn uniformly."""
    uniform: tuple[float, float] | None = None
    """[low, high]: a number between low and high."""
    randint: tuple[int, int] | None = None
    """[low, high]: a whole number from low to high, both included."""
    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    """A list of values, of which one is drawn. A value may be a whole section, such as a layout."""
    step: Annotated[float, Field(gt=0)] | None = None
    """With an interval: only low, low + step, low + 2 step and so on are drawn. With loguniform, low must be a multiple
    of step, and the values are whole numbers if low and step are."""
    when: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field({})
    """The parameter exists only where each parameter named here has one of the values listed for it."""

    @model_validator(mode="after")
    def _is_one_domain(self) -> Self:
        if len(self._chosen()) != 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}")
        if self.choice is None:
            low, high = self.values
            require(low < high, self.kind, "expected [low, high] with low below high")
            require(self.kind != "loguniform" or low > 0, self.kind, "expected numbers above 0")
            require(max(-low, high) <= LARGEST, self.kind, f"expected numbers from {-LARGEST:g} to {LARGEST:g}")
            least = self.kind != "loguniform" or low >= SMALLEST
            require(least, self.kind, f"expected numbers from {SMALLEST:g} to {LARGEST:g}")
        if self.step is not None:
            self._check_step(self.step)
        return self

    def _check_step(self, step: float) -> None:
        require(self.choice is None, "step", "expected none beside a choice")
        require(self.kind != "randint" or step == int(step), "step", "expected a whole number")
        low, high = self.values
        require(step <= high - low, "step", f"expected at most {high - low:g}, the length of the interval")
        few = (high - low) / step <= MOST_STEPS
        require(few, "step", f"expected {(high - low) / MOST_STEPS:g} or more, for {MOST_STEPS:,} steps at most")
        multiple = self.kind != "loguniform" or math.isclose(round(low / step) * step, low, rel_tol=1e-9)
        require(multiple, "step", f"expected a number that {low:g}, the lower end, is a multiple of")

    def _chosen(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) is not None]

    @property
    def kind(self) -> str:
        """The name of the field that is set."""
        return self._chosen()[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """The two ends of an interval, or all the choices."""
        values: tuple[Any, ...] = getattr(self, self.kind)
        return values

    def ends(self) -> tuple[Any, ...]:
        """The two ends, or all the choices. A training that accepts the ends also accepts the values between them."""
        listed = self.listed() if self.kind == "loguniform" else None
        if listed is None:
            return self.values
        return listed[0], listed[-1]

    def listed(self) -> Sequence[Any] | None:
        """All values in order, or None for an interval without steps. Whole numbers are a range, which may be long."""
        if self.choice is not None:
            return self.choice
        if self.randint is not None:
            return range(self.randint[0], self.randint[1] + 1, int(self.step or 1))
        if self.step is None:
            return None
        low, high = self.values
        count = math.floor((high - low) / self.step + 1e-9) + 1
        values = (float(f"{low + index * self.step:.12g}") for index in range(count))
        integral = self.kind == "loguniform" and low.is_integer() and self.step.is_integer()
        return tuple(map(int, values)) if integral else tuple(values)

    def plain(self) -> dict[str, Any]:
        """The fields that are set, as JSON, for the log of a sweep."""
        fields: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        return fields
