"""What a dataset recipe holds: where the texts come from, how they are cleaned, encoded, split and packed.

With a section `images` the documents are labelled images instead, which are neither cleaned nor encoded. Everything
but the source has a default, so that a recipe for a folder of one's own is three lines.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from recipes.cleaning import Cleaning
from recipes.kubernetes import Quantity
from recipes.parts import Count, Part, Recipe, Text
from trainer.invalid import require


class Selection(Part):
    """Which files of a source are taken: those that an `include` matches and no `exclude` does.

    Both are patterns of `fnmatch` over the path inside the source, with forward slashes; `*` also matches `/`.
    """

    include: tuple[Text, ...] = ("*",)
    exclude: tuple[Text, ...] = ()

    def selects(self, path: str) -> bool:
        """Whether the file at `path`, relative to the source, is taken."""
        return any(fnmatchcase(path, each) for each in self.include) and not any(
            fnmatchcase(path, each) for each in self.exclude
        )


class Stdlib(Selection):
    """The interpreter's own standard library: sources, without tests and without what others installed."""

    kind: Literal["stdlib"]
    include: tuple[Text, ...] = ("*.py",)
    exclude: tuple[Text, ...] = tuple(
        pattern
        for folder in ("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__")
        for pattern in (f"{folder}/*", f"*/{folder}/*")
    )


class Directory(Selection):
    """The files below a folder."""

    kind: Literal["directory"]
    path: Text
    """An absolute path once loaded; the recipe may write it relative to its own file."""

    @property
    def file_system_snapshot(self) -> str | None:
        """The snapshot of the file system that the folder lies in, as CephFS shows them: `.snap/<name>`."""
        parts = Path(self.path).parts
        return parts[parts.index(".snap") + 1] if ".snap" in parts[:-1] else None

    @property
    def place(self) -> str:
        """Where the folder lies, whichever snapshot of the file system it is seen in."""
        return str(Path(self.path)).replace(f"/.snap/{self.file_system_snapshot}", "")

    @field_validator("path")
    @classmethod
    def _from_the_recipe(cls, path: str, info: ValidationInfo) -> str:
        return str(((info.context or {}).get("folder", Path.cwd()) / path).resolve())


class ObjectStore(Selection):
    """The objects below a prefix of an S3 bucket; endpoint and credentials come from the environment (AWS_*)."""

    kind: Literal["s3"]
    url: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$")]
    """`s3://bucket/prefix`"""


class Reading(Part):
    """How files become documents; a file's format is told by its name (docs/datasets.md)."""

    text_field: Text = "text"
    """The field of a JSON line, or the column of a Parquet file, that holds the text."""
    longest_megabytes: Annotated[float, Field(gt=0)] = 16.0
    """A document with more text than this is set aside; it bounds the memory that a reader needs."""
    quarantine: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The largest share of documents that may be set aside as unreadable before the build is refused."""


class Images(Part):
    """Labelled images in the rows of Parquet files, instead of texts; all are brought to one size."""

    height: Count
    width: Count
    channels: Literal[1, 3, 4] = 3
    """1 is grey, 3 is red, green and blue, 4 has opacity too."""
    image_field: Text = "image"
    """The column with the image: a PNG or JPEG, or a struct with one as `bytes`; or a list of the pixels' bytes."""
    label_field: Text = "label"
    """The column with the class: a whole number or text."""
    largest_megapixels: Annotated[float, Field(gt=0)] = 50.0
    """An image with more pixels is set aside; it bounds the memory that a reader needs."""
    shard_megabytes: Annotated[float, Field(gt=0)] = 32.0
    """Pixels in a shard, on average; a shard is between half and one and a half times as long."""


class Tokenizer(Part):
    """A byte-level BPE tokenizer: trained on the first training split, then kept; or one that exists."""

    vocab_size: Annotated[int, Field(ge=257)] = 8192
    """Tokens in all: the 256 bytes, the end of a document, and merges."""
    edition: Count = 1
    """Raise it to have a new tokenizer trained on the present documents: every shard changes with it."""
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """Text that it is trained on at most: a sample of the training documents, chosen by their hash."""
    file: Text | None = None
    """An existing tokenizer instead, in the JSON of the library `tokenizers`; relative to the recipe."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str | None, info: ValidationInfo) -> str | None:
        return None if file is None else str(((info.context or {}).get("folder", Path.cwd()) / file).resolve())


class Split(Part):
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """The share of the documents that is held out, chosen by their hash."""


class Shards(Part):
    tokens: Count = 16_777_216
    """Tokens in a shard, on average; a shard is between half and one and a half times as long."""


class Checks(Part):
    """What must hold of a snapshot before trainings see it; a check that fails blocks what is downstream."""

    drift: Annotated[float, Field(gt=0)] = 0.25
    """The largest population stability index of lengths and languages against the parent snapshot."""


class Dataset(Recipe):
    FORMAT: ClassVar = "dataset/1"

    description: Text = "A dataset"
    owner: str = "team:data"
    source: Annotated[Stdlib | Directory | ObjectStore, Field(discriminator="kind")]
    reading: Reading = Reading()
    images: Images | None = None
    cleaning: Cleaning = Cleaning()
    tokenizer: Tokenizer = Tokenizer()
    split: Split = Split()
    shards: Shards = Shards()
    checks: Checks = Checks()
    resources: dict[str, Quantity] = Field(default={})
    """What the pods that build it are given on a cluster, where the usual does not do: `memory: 128Gi`."""

    @model_validator(mode="after")
    def _images_are_no_text(self) -> Self:
        if self.images is None:
            return self
        for section in ("cleaning", "tokenizer", "shards"):
            require(
                section not in self.model_fields_set, section, "expected no such section beside images: it is for texts"
            )
        of_text = "text_field" in self.reading.model_fields_set
        require(not of_text, "reading.text_field", "expected no such field beside images: see images.image_field")
        require(self.source.kind != "stdlib", "source.kind", "expected directory or s3: there are no images in stdlib")
        return self

    def selects(self, path: str) -> bool:
        """Whether the file at `path`, relative to the source, is taken; images lie in Parquet files alone."""
        return self.source.selects(path) and (self.images is None or path.lower().endswith(".parquet"))

    def content(self) -> dict[str, Any]:
        """What decides the snapshot's content, as JSON has it.

        Where the files lie is not part of it: their names and contents are, in the snapshot's provenance.
        """
        of_kind = {"cleaning", "tokenizer", "shards"} if self.images is None else {"images"}
        sections = {"source", "reading", "split"} | of_kind
        content = self.model_dump(mode="json", include=sections)
        for place in ("path", "url"):
            content["source"].pop(place, None)
        content["reading"].pop("quarantine")
        if self.images is not None:
            return content
        content["tokenizer"].pop("file")
        if content["cleaning"]["decontamination"]:
            content["cleaning"]["decontamination"].pop("against")
        return content
