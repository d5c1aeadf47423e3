"""Builds of small datasets, and their contents."""

from pathlib import Path

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps, tokenizer
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import shards


def build(recipe: DatasetRecipe, durable: Path) -> shards.TextSnapshot:
    """Make all the steps of a dataset and point it at the snapshot."""
    source = steps.make_documents(recipe, durable).inputs["source"]["digest"]
    steps.make_tokenizer(recipe, durable)
    snapshot = shards.read_manifest(durable, steps.make_snapshot(recipe, durable).result["sha256"])
    pointer.point(durable, recipe.name, snapshot.sha256, source)
    return snapshot


def hold_none_out(durable: Path, dataset: str = "small-corpus") -> None:
    """From now on the dataset is none that is new, of which one document would be held out whatever the share."""
    history = durable / "datasets" / dataset / "history.journal"
    history.parent.mkdir(parents=True)
    history.touch()


def rebuild(recipe: DatasetRecipe, durable: Path, parent: Path) -> shards.TextSnapshot:
    """Make the dataset from nothing in `durable`, with the tokenizer that it has in `parent`."""
    tokenizer_file = durable.parent / "kept-tokenizer.json"
    tokenizer_file.write_bytes(tokenizer.read(parent, steps.latest_tokenizer(recipe, parent).sha256))
    keeping = recipe.tokenizer.model_copy(update={"file": str(tokenizer_file)})
    return build(recipe.model_copy(update={"tokenizer": keeping}), durable)


def texts_of(snapshot: shards.TextSnapshot, durable: Path, split: str) -> list[str]:
    """Every document of a split, decoded from the shards."""
    encoding, texts = tokenizer.load(durable, snapshot.tokenizer.sha256), []
    for shard in snapshot.splits[split].shards:
        for tokens in shards.documents(durable, shard, snapshot.dtype):
            assert tokens[-1] == snapshot.tokenizer.end_of_document
            texts.append(encoding.decode(tokens[:-1].tolist()))
    return texts


def content(durable: Path) -> dict[str, bytes]:
    """Every file that snapshots consist of, by its path."""
    folders = ("shards", "snapshots", "documents", "tokenizers")
    paths = [path for folder in folders for path in sorted((durable / folder).glob("*"))]
    return {str(path.relative_to(durable)): path.read_bytes() for path in paths}


def strays(durable: Path) -> list[Path]:
    """Unfinished files that a build left."""
    return [path for path in durable.rglob("*") if path.name.endswith(".tmp") or "building" in path.parts[:-1]]


def split_of(blake3: str, validation: float) -> str:
    """The split of a document by the hash of its cleaned text."""
    return "validation" if blake3[:13] < document_table.held_out_below(validation) else "train"
