"""Small corpora and the recipes that read them."""

from pathlib import Path
from typing import Any

from slipway.recipes.dataset import DatasetRecipe

VOCABULARY = [
    "def",
    "return",
    "while",
    "shard",
    "token",
    "import",
    "yield",
    "42",
    "1999",
    "λ",
    "über",
    "数据",
    "\t",
    "    #",
]


def make_corpus(folder: Path, files: int = 60) -> Path:
    """Write `files` different texts in three packages."""
    for index in range(files):
        text = "\n".join(
            " ".join(VOCABULARY[(index * line + line) % len(VOCABULARY) :]) + str(index) for line in range(1, 8)
        )
        write_file(folder / f"package{index % 3}" / f"module{index}.py", text)
    return folder


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def recipe_for(
    corpus: Path | None,
    include: tuple[str, ...] | None = None,
    exclude: tuple[str, ...] | None = None,
    vocab_size: int = 300,
    validation: float = 0.25,
    shard_tokens: int = 1000,
    **sections: Any,
) -> DatasetRecipe:
    """A dataset recipe over a directory, or over the standard library when there is no corpus.

    The small texts are much alike, so documents are compared for equality alone unless `sections` say otherwise.
    """
    source: dict[str, Any] = {"kind": "stdlib"} if corpus is None else {"kind": "directory", "path": str(corpus)}
    globs = {"include": include, "exclude": exclude}
    return DatasetRecipe.model_validate(
        {
            "name": "small-corpus",
            "description": "Small texts.",
            "owner": "team:data",
            "source": source | {name: value for name, value in globs.items() if value is not None},
            "tokenizer": {"vocab_size": vocab_size},
            "split": {"validation": validation},
            "shards": {"tokens": shard_tokens},
            "cleaning": {"near_duplicates": None, "decontamination": None},
            **sections,
        }
    )
