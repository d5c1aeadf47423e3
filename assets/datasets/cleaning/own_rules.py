"""Rules of one's own: functions in Python files that a recipe names, which say of a document whether it is kept.

A rule is a pure function of the document: it is called in several processes, and its answer is kept as long as its file
does not change.
"""

import importlib.util
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from slipway.recipes.filters import require_function
from slipway.trainer.base import digest, regular_file
from slipway.trainer.base.invalid import Invalid


@dataclass(frozen=True)
class RuledDocument:
    """What a rule of one's own is given. The text is normalised and not masked yet; what is not known is empty."""

    name: str
    """The name of its file in the source."""
    text: str
    language: str
    url: str
    licence: str
    date: str


OwnRule = Callable[[RuledDocument], object]
"""It gives True or False; what it gives else is refused."""


def load(rules: Mapping[str, str]) -> dict[str, OwnRule]:
    """The functions of a recipe's rules. Raises ValueError, naming rule and file, for one that cannot be loaded."""
    return {name: _loaded(name, file, digest_of(name, file)) for name, file in rules.items()}


def digest_of(name: str, file: str) -> str:
    """The BLAKE3 of a rule's file. Raises ValueError when it cannot be read."""
    try:
        return digest.of_bytes(regular_file.read(Path(file)))
    except OSError as error:
        raise ValueError(f"cleaning.own_rules.{name}: expected a file of Python at {file}: {error.strerror}") from None


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
            found = f"found {keeps!r}, expected True to keep it or False"
            raise ValueError(f"cleaning.own_rules.{name}: document {document.name}: {found}")
        if not keeps:
            return name
    return None


@cache
def _loaded(name: str, file: str, blake3: str) -> OwnRule:
    """The function in the file as it is now; `blake3` keeps apart what the file was before."""
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
