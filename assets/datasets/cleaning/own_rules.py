"""The user's own rules: functions in Python files that a recipe names, and a fastText classifier.

A rule is a pure function of the document: several processes call it, and its answers stay valid until its file changes.
A classifier (Joulin et al. 2016, arXiv 1607.01759), such as DCLM's quality classifier, gives a score, which is compared
with a threshold. A process reads the model once, when it cleans its first document. As in datatrove's
`FastTextClassifierFilter`, the whole text is judged at once; a newline counts as a space.
"""

import importlib.util
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from slipway.recipes.filters import ClassifierSection, require_function
from slipway.trainer.base import digest, regular_file, verify
from slipway.trainer.base.invalid import Invalid

LABEL_PREFIX = "__label__"


@dataclass(frozen=True)
class RuledDocument:
    """The argument of a user's rule. The text is normalised but not masked; unknown fields are empty."""

    name: str
    """The name of its file in the source."""
    text: str
    language: str
    url: str
    license: str
    date: str


OwnRule = Callable[[RuledDocument], object]
"""A user's rule. It must return True or False."""


def load(rules: Mapping[str, str]) -> dict[str, OwnRule]:
    """Load the functions of a recipe's rules. Raises ValueError, with rule and file, if one cannot be loaded."""
    return {name: _loaded(name, file, digest_of_rule(name, file)) for name, file in rules.items()}


def digest_of_rule(name: str, file: str) -> str:
    """The BLAKE3 of a rule's file. Raises ValueError if it cannot be read."""
    try:
        return digest.of_bytes(regular_file.read(Path(file)))
    except OSError as error:
        raise ValueError(f"cleaning.own_rules.{name}: expected a Python file at {file}: {error.strerror}") from None


def first_broken(rules: Mapping[str, OwnRule], document: RuledDocument) -> str | None:
    """The name of the first rule that does not keep the document, or None. Raises ValueError for a rule that fails."""
    for name, rule in rules.items():
        try:
            keeps = rule(document)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
            raise ValueError(f"cleaning.own_rules.{name}: document {document.name}: {problem}") from error
        if not isinstance(keeps, bool):
            message = f"found {keeps!r}, expected True to keep it or False"
            raise ValueError(f"cleaning.own_rules.{name}: document {document.name}: {message}")
        if not keeps:
            return name
    return None


@cache
def _loaded(name: str, file: str, blake3: str) -> OwnRule:
    """The function in the present file; `blake3` distinguishes earlier contents of the file."""
    try:
        require_function(Path(file), name)
        specification = importlib.util.spec_from_file_location(f"own_rules_{blake3[:16]}", file)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    except Invalid as error:
        raise ValueError(f"cleaning.own_rules.{error}") from None
    except Exception as error:
        raise ValueError(f"cleaning.own_rules.{name}: {file}: {type(error).__name__}: {error}") from error
    return cast(OwnRule, getattr(module, name))


class TextClassifier:
    """Scores of one label. Raises ValueError for a file that is no model, or whose model does not know the label."""

    def __init__(self, section: ClassifierSection) -> None:
        self.at_least = section.at_least
        self._label = LABEL_PREFIX + section.label.removeprefix(LABEL_PREFIX)
        self._model = _model(section.file, digest_of_model(section))
        known = self._model.predict("", k=-1)[0]
        if self._label not in known:
            examples = ", ".join(sorted(label.removeprefix(LABEL_PREFIX) for label in known)[:20])
            message = f"cleaning.classifier.label: found {section.label!r}"
            raise ValueError(f"{message}, expected a label of the model: {examples}")

    def score(self, text: str) -> float:
        """The probability of the label, from 0 to 1."""
        line = text.strip().replace("\n", " ")
        prediction = self._model.predict(line.encode(errors="replace").decode(), k=-1)
        return min(
            next((float(score) for label, score in zip(*prediction, strict=True) if label == self._label), 0.0), 1.0
        )


def digest_of_model(section: ClassifierSection) -> str:
    """The BLAKE3 of the model's file. Raises ValueError if it does not exist."""
    if not Path(section.file).is_file():
        raise ValueError(f"cleaning.classifier.file: expected a model of fastText at {section.file}, found no file")
    return verify.measure(Path(section.file)).blake3


@cache
def _model(file: str, blake3: str) -> Any:
    """The model in the present file; `blake3` distinguishes earlier contents of the file."""
    import fasttext  # imported here, because every Dagster process loads this module and few of them clean

    try:
        return fasttext.load_model(file)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"cleaning.classifier.file: {file}: expected a model of fastText: {error}") from None
