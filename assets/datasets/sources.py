"""Sources: the files that a dataset is made of, listed and hashed before anything is built from them.

The digest covers names and contents and nothing else: not the folder the files lie in, not their dates, not
the order they were found in. So the same corpus gives the same snapshot on every machine.
"""

import os
import platform
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recipes.schema import Dataset, Selection
from trainer import atomic, digest


class SourceFile(NamedTuple):
    """One file: its name relative to the source, where it lies, and the BLAKE3 of its content."""

    name: str
    path: Path
    blake3: str


@dataclass(frozen=True)
class Source:
    """A listed source: the files that hold documents, by name, and how many were left out, by reason."""

    kind: str
    files: tuple[SourceFile, ...]
    digest: str
    bytes: int
    description: str
    left_out: dict[str, int]

    def provenance(self) -> dict[str, Any]:
        """What a snapshot's manifest says of its source; paths are left out, as they differ by machine."""
        return {
            "kind": self.kind,
            "digest": self.digest,
            "files": len(self.files),
            "bytes": self.bytes,
            "description": self.description,
            "left_out": self.left_out,
        }


def list_source(recipe: Dataset) -> Source:
    """List and hash the files of a recipe's source.

    Files that cannot be a document (empty, or not UTF-8) are left out and counted. Raises ValueError, naming the
    recipe, when the folder is missing or holds no document, and OSError for a file that cannot be read.
    """
    spec = recipe.source
    root = _root(recipe)
    files, reasons, size = [], Counter[str](), 0
    for name, path in _selected(root, spec):
        data = path.read_bytes()
        reason = _unfit(name, data)
        if reason:
            reasons[reason] += 1
            continue
        files.append(SourceFile(name, path, digest.of_bytes(data)))
        size += len(data)
    if not files:
        raise ValueError(_nothing_found(recipe, root, reasons))
    description = f"standard library of Python {platform.python_version()}" if spec.kind == "stdlib" else "a directory"
    return Source(spec.kind, tuple(files), _digest(files), size, description, dict(sorted(reasons.items())))


def _root(recipe: Dataset) -> Path:
    if recipe.source.kind == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    root = Path(recipe.source.path)
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing"
        raise ValueError(f"dataset {recipe.name}: source.path: found {found} at {root}, expected a directory")
    return root


def _selected(root: Path, selection: Selection) -> Iterator[tuple[str, Path]]:
    """Names and paths of the files that the recipe takes, in the order of their names."""
    for name in sorted(_names(root)):
        if selection.selects(name) and (root / name).is_file():
            yield name, root / name


def _names(root: Path) -> Iterator[str]:
    """Every file under `root`, relative to it, with forward slashes."""
    for folder, _, names in os.walk(root):
        inside = Path(folder).relative_to(root).as_posix()
        yield from names if inside == "." else (f"{inside}/{name}" for name in names)


def _unfit(name: str, data: bytes) -> str | None:
    """Why a file cannot be a document, or None when it can."""
    if not data:
        return "empty"
    try:
        name.encode()
        data.decode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except UnicodeDecodeError:
        return "not UTF-8"
    return None


def _digest(files: list[SourceFile]) -> str:
    return digest.of_bytes(atomic.canonical_json(sorted([file.name, file.blake3] for file in files)))


def _nothing_found(recipe: Dataset, root: Path, reasons: Counter[str]) -> str:
    spec = recipe.source
    left_out = "".join(f", {count} left out ({reason})" for reason, count in sorted(reasons.items()))
    if spec.kind == "stdlib":
        return (
            f"dataset {recipe.name}: found no sources of Python's standard library in {root} "
            f"(include {list(spec.include)}){left_out}; expected about 600 .py files. "
            "A Python that ships them compiled or zipped has none: use another, or a source of kind directory"
        )
    globs = f"include {list(spec.include)}, exclude {list(spec.exclude)}"
    return f"dataset {recipe.name}: found no document in {root} ({globs}){left_out}; expected at least one text file"
