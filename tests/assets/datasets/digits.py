"""The handwritten digits of scikit-learn as PNGs in Parquet files, and the recipes that read them."""

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits

from slipway.assets.datasets.images import steps
from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import images

FILES = 6


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images [n, 8, 8], whose 17 greys are spread over the values of a byte, and their digits [n]."""
    dataset = load_digits()
    return (dataset.images * 15).astype(np.uint8), dataset.target


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def write(path: Path, column: Any, labels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": column, "label": labels}), path, row_group_size=100)


def make_digits(folder: Path) -> Path:
    """Write all digits into `FILES` files, in their order."""
    pixels, labels = digits()
    for number, rows in enumerate(np.array_split(np.arange(len(labels)), FILES)):
        write(folder / f"digits-{number}.parquet", [png(pixels[row]) for row in rows], labels[rows])
    return folder


def recipe_for(corpus: Path, height: int = 8, width: int = 8, channels: int = 1, **sections: Any) -> DatasetRecipe:
    size = {"height": height, "width": width, "channels": channels, "shard_megabytes": 0.008}
    return DatasetRecipe.model_validate(
        {
            "name": "digits",
            "owner": "team:data",
            "source": {"kind": "directory", "path": str(corpus)},
            "images": size,
            "split": {"validation": 0.2},
            **sections,
        }
    )


def build(recipe: DatasetRecipe, durable: Path) -> images.ImageSnapshot:
    """Make all the steps of an image dataset and point it at the snapshot."""
    source = steps.make_documents(recipe, durable).inputs["source"]["digest"]
    snapshot = images.read_manifest(durable, steps.make_snapshot(recipe, durable).result["sha256"])
    pointer.point(durable, recipe.name, snapshot.sha256, source)
    return snapshot


def contents(snapshot: images.ImageSnapshot, durable: Path, split: str) -> set[tuple[bytes, str]]:
    """The pixels and the class of every image of a split."""
    pairs = set()
    for shard in snapshot.splits[split].shards:
        pixels, labels = images.open_images(durable, shard, snapshot.shape)
        pairs |= {(one.tobytes(), snapshot.classes[label]) for one, label in zip(pixels, labels, strict=True)}
    return pairs
