"""A classifier of one's own, made with fastText (Joulin et al. 2016, arXiv 1607.01759), such as DCLM's of quality.

A process reads the model once, when it cleans its first document. As in datatrove's `FastTextClassifierFilter`, the
whole text is judged at once; a newline counts as a space.
"""

from functools import cache
from pathlib import Path
from typing import Any

from slipway.recipes.filters import ClassifierSection
from slipway.trainer.base import verify

PREFIX = "__label__"


class TextClassifier:
    """Scores of one label. Raises ValueError for a file that is no model, or whose model does not know the label."""

    def __init__(self, section: ClassifierSection) -> None:
        self.at_least = section.at_least
        self._label = PREFIX + section.label.removeprefix(PREFIX)
        self._model = _model(section.file, digest_of(section))
        known = self._model.predict("", k=-1)[0]
        if self._label not in known:
            shown = ", ".join(sorted(each.removeprefix(PREFIX) for each in known)[:20])
            place = f"cleaning.classifier.label: found {section.label!r}"
            raise ValueError(f"{place}, expected a label of the model: {shown}")

    def score(self, text: str) -> float:
        """The probability of the label, from 0 to 1."""
        line = text.strip().replace("\n", " ")
        found = self._model.predict(line.encode(errors="replace").decode(), k=-1)
        return min(next((float(score) for label, score in zip(*found, strict=True) if label == self._label), 0.0), 1.0)


def digest_of(section: ClassifierSection) -> str:
    """The BLAKE3 of the model's file. Raises ValueError when there is none."""
    if not Path(section.file).is_file():
        raise ValueError(f"cleaning.classifier.file: expected a model of fastText at {section.file}, found no file")
    return verify.measure(Path(section.file)).blake3


@cache
def _model(file: str, blake3: str) -> Any:
    """The model in the file as it is now; `blake3` keeps apart what the file was before."""
    import fasttext  # here, because every process of Dagster loads this module and few of them clean

    try:
        return fasttext.load_model(file)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"cleaning.classifier.file: {file}: expected a model of fastText: {error}") from None
