"""A dataset's recipe: where the texts come from, and how they are cleaned, encoded, split and packed.

With a section `images` the documents are labelled images instead, which are neither cleaned nor encoded. Every field
but the source has a default, so a recipe for a folder of texts is three lines long.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from slipway.recipes.cleaning import CleaningSection
from slipway.recipes.kubernetes import Quantity
from slipway.recipes.parts import Count, Recipe, RecipeSection, Text, absolute
from slipway.trainer.base.invalid import require


class FileSelection(RecipeSection):
    """The files of a source that are taken: those that match an `include` pattern and no `exclude` pattern.

    Both are patterns of `fnmatch` over the path inside the source, with forward slashes; `*` also matches `/`, and
    `**/` also matches nothing.
    """

    include: tuple[Text, ...] = ("*",)
    """The patterns of the files that are taken."""
    exclude: tuple[Text, ...] = ()
    """The patterns of the files that are left out, even if an `include` pattern matches them."""

    def selects(self, path: str) -> bool:
        """Whether the file at `path`, relative to the source, is taken."""
        return any(_matches(path, glob) for glob in self.include) and not any(
            _matches(path, glob) for glob in self.exclude
        )

    def passes_over(self, folder: str) -> bool:
        """Whether an `exclude` pattern matches whatever is below `folder`: it ends in `*` and matches its beginning."""
        return any(glob.endswith("*") and _matches(f"{folder}/", glob) for glob in self.exclude)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern, in which `**/` stands for any folders or none, as in most tools."""
    if fnmatchcase(path, pattern):
        return True
    without = pattern.removeprefix("**/").replace("/**/", "/")
    return without != pattern and fnmatchcase(path, without)


class StdlibSource(FileSelection):
    """The sources of the interpreter's own standard library, without its tests and without installed packages."""

    kind: Literal["stdlib"]
    include: tuple[Text, ...] = ("*.py",)
    """The patterns of the files that are taken."""
    exclude: tuple[Text, ...] = tuple(
        pattern
        for folder in ("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__")
        for pattern in (f"{folder}/*", f"*/{folder}/*")
    )
    """The patterns of the files that are left out, even if an `include` pattern matches them."""


class DirectorySource(FileSelection):
    """The files below a folder."""

    kind: Literal["directory"]
    path: Text
    """The folder with the files; a relative path starts at the recipe's folder."""

    @property
    def file_system_snapshot(self) -> str | None:
        """The name of the file system's snapshot that the folder lies in (`.snap/<name>` on CephFS), or None."""
        parts = Path(self.path).parts
        return parts[parts.index(".snap") + 1] if ".snap" in parts[:-1] else None

    @property
    def location(self) -> str:
        """The path of the folder without the file system's snapshot, which may change from build to build."""
        return str(Path(self.path)).replace(f"/.snap/{self.file_system_snapshot}", "")

    @field_validator("path")
    @classmethod
    def _from_the_recipe(cls, path: str, info: ValidationInfo) -> str:
        return absolute(path, info)


class ObjectStoreSource(FileSelection):
    """The objects below a prefix of an S3 bucket. Endpoint and credentials come from the environment (AWS_*)."""

    kind: Literal["s3"]
    url: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$")]
    """The bucket and the prefix: `s3://bucket/prefix`."""


class MetadataSection(RecipeSection):
    """The fields of a JSON object, or the columns of a table, that say where a document comes from. Of the pages of a
    web archive, URL and date are known without them."""

    url: Text | None = None
    """The field with the document's URL."""
    licence: Text | None = None
    """The field with its licence, or a list of its licences."""
    date: Text | None = None
    """The field with its date, as ISO 8601 writes it."""


class ReadingSection(RecipeSection):
    """How documents are read from files. A file's content and name tell its format (docs/datasets.md)."""

    format: Literal["text", "lines", "array", "object", "csv", "html", "warc"] | None = None
    """The format of all files but Parquet ones, whatever they look like; null to tell it from each file."""
    separator: Text | None = None
    """What stands between two documents of a plain file, such as `<|endoftext|>`, or `"\\n"` for a document in each
    line; null for one document in each file."""
    encoding: Text | None = None
    """The encoding of what is not UTF-8 in plain files, JSON and tables, such as `cp1252` or `euc_jp`; null to
    tell it from each plain file."""
    text_field: Text = "text"
    """The field of a JSON object, or the column of a table, that holds the text."""
    metadata: MetadataSection = MetadataSection()
    whole_megabytes: Annotated[float, Field(gt=0)] | None = 1.0
    """Megabytes of the longest plain file that is one document; a longer one is divided, where paragraphs or lines
    end, into parts of about a sixteenth of this. Null to divide none."""
    longest_megabytes: Annotated[float, Field(gt=0)] = 16.0
    """Megabytes of text in the longest document that is kept; it limits the memory that a reader needs."""
    quarantine: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The largest share of unreadable documents, and of files that break off, from 0 to 1, with which a build goes
    on instead of failing."""

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        try:
            b"  ".decode(encoding or "utf-8")  # of no bytes, Python does not look for the encoding
        except UnicodeError:
            return encoding
        except (LookupError, ValueError):
            raise ValueError("expected an encoding that Python knows") from None
        return encoding

    def content(self) -> dict[str, Any]:
        """The fields that decide what documents a file holds, as JSON has them."""
        content = self.model_dump(mode="json", exclude={"quarantine"})
        if self.whole_megabytes == ReadingSection.model_fields["whole_megabytes"].default:
            del content["whole_megabytes"]  # recipes of before this field keep their hashes
        return content


class ImagesSection(RecipeSection):
    """Labelled images in the rows of Parquet files, instead of texts. All images are resized to one size."""

    height: Count
    """Pixels of every image from top to bottom."""
    width: Count
    """Pixels of every image from left to right."""
    channels: Literal[1, 3, 4] = 3
    """Numbers per pixel: 1 is grey, 3 is red, green and blue, 4 is these and opacity."""
    image_field: Text = "image"
    """The column with the image: a PNG or JPEG, a struct with one as `bytes`, or a list of the pixels' bytes."""
    label_field: Text = "label"
    """The column with the name of the class, a whole number or text."""
    largest_megapixels: Annotated[float, Field(gt=0)] = 50.0
    """Millions of pixels in the largest image that is kept; it limits the memory that a reader needs."""
    shard_megabytes: Annotated[float, Field(gt=0)] = 32.0
    """Megabytes of pixels in an average shard; every shard has between half and one and a half times as many."""


class TokenizerSection(RecipeSection):
    """A byte-level BPE tokenizer: trained on the first training split and then kept, or an existing one."""

    vocab_size: Annotated[int, Field(ge=257)] = 8192
    """The number of tokens: the 256 bytes, the end of a document, and the merges."""
    edition: Count = 1
    """A number to raise for a new tokenizer, trained on the present documents; every shard changes with it."""
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """Megabytes of text to train on at most: a sample of the training documents, chosen by their hashes."""
    file: Text | None = None
    """The file of an existing tokenizer to use instead, in the JSON of the library `tokenizers`, or a SentencePiece
    model; a relative path starts at the recipe's folder."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str | None, info: ValidationInfo) -> str | None:
        return None if file is None else absolute(file, info)


class SplitSection(RecipeSection):
    """The share of the documents that is held out for validation."""

    validation: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """The share of the documents, between 0 and 1, that is held out for validation; their hashes decide which."""


class ShardsSection(RecipeSection):
    """How the tokens are divided into shards."""

    tokens: Count = 16_777_216
    """Tokens in an average shard; every shard has between half and one and a half times as many."""


class ChecksSection(RecipeSection):
    """The limits of the checks that a snapshot passes before trainings use it; a failed check blocks later assets."""

    drift: Annotated[float, Field(gt=0)] = 0.25
    """The largest population stability index, against the parent snapshot, of lengths and languages, or of classes."""
    left_out: Annotated[float, Field(ge=0, le=1)] = 0.9
    """The largest share of the documents that were read, by number, that cleaning and comparison may leave out."""
    contaminated: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The largest share of the documents that may be left out because of what they share with an evaluation set."""
    shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.5
    """By which share of its parent's bytes of text, or of pixels, a snapshot may be smaller."""
    removal: Annotated[float, Field(ge=0, le=1)] = 0.2
    """By how much the share of the documents that one rule leaves out may differ from that of the parent."""
    language: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The largest share of its bytes that a language may lose against the parent."""
    source: Annotated[float, Field(ge=0, le=1)] = 0.9
    """The largest share of its bytes that a source, a folder at the top, may lose against the parent."""
    queries: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$")], Text] = Field(default={})
    """Checks of one's own, by their names: SQL of duckdb over the tables `documents` and `parent`, which gives the
    rows that should not be there (docs/datasets.md)."""


class DatasetRecipe(Recipe):
    FORMAT: ClassVar = "dataset/1"

    description: Text = "A dataset"
    """What the dataset is, in one sentence for the UI."""
    owner: str = "team:data"
    source: Annotated[StdlibSource | DirectorySource | ObjectStoreSource, Field(discriminator="kind")]
    reading: ReadingSection = ReadingSection()
    images: ImagesSection | None = None
    cleaning: CleaningSection = CleaningSection()
    tokenizer: TokenizerSection = TokenizerSection()
    split: SplitSection = SplitSection()
    shards: ShardsSection = ShardsSection()
    checks: ChecksSection = ChecksSection()
    engine: Literal["local", "dask"] | None = None
    """Where documents are read, cleaned and encoded: `local`, in the step's own pod, or `dask`, by the workers of
    `compute.dask` in the platform's settings; by default, there if the settings have it. It changes no byte."""
    resources: dict[str, Quantity] = Field(default={})
    """The resources of the pods that build the dataset on a cluster, such as `memory: 128Gi`; the cluster's settings
    decide the others."""

    @model_validator(mode="after")
    def _images_are_no_text(self) -> Self:
        if self.images is None:
            return self
        for section in ("cleaning", "tokenizer", "shards"):
            require(
                section not in self.model_fields_set, section, "expected no such section beside images: it is for texts"
            )
        for field in ("text_field", "metadata"):
            of_text = field in self.reading.model_fields_set
            require(not of_text, f"reading.{field}", "expected no such field beside images: see images.image_field")
        require(self.source.kind != "stdlib", "source.kind", "expected directory or s3: there are no images in stdlib")
        return self

    def selects(self, path: str) -> bool:
        """Whether the file at `path`, relative to the source, is taken; for images, only Parquet files are."""
        return self.source.selects(path) and (self.images is None or path.lower().endswith(".parquet"))

    def content(self) -> dict[str, Any]:
        """The fields that decide the snapshot's content, as JSON has them.

        The place of the files is not among them: the snapshot's provenance has their names and contents.
        """
        of_kind = {"cleaning", "tokenizer", "shards"} if self.images is None else {"images"}
        sections = {"source", "reading", "split"} | of_kind
        content = self.model_dump(mode="json", include=sections)
        for field in ("path", "url"):
            content["source"].pop(field, None)
        content["reading"] = self.reading.content()
        if self.images is not None:
            return content
        content["tokenizer"].pop("file")
        content["cleaning"] = self.cleaning.content()
        return content
