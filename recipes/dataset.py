"""A dataset's recipe: where the texts come from, and how they are cleaned, encoded, split and packed.

With a section `images` the documents are labelled images instead, which are neither cleaned nor encoded. All fields
except the source have defaults, so a recipe for a folder of texts is three lines long.
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
    """Selects the files of a source that match an `include` pattern and no `exclude` pattern.

    The patterns are those of `fnmatch`, over the path inside the source with forward slashes. `*` also matches `/`, and
    `**/` also matches the empty text.
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
        """Whether an `exclude` pattern that ends in `*` matches everything below `folder`."""
        return any(glob.endswith("*") and _matches(f"{folder}/", glob) for glob in self.exclude)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern. As in most tools, `**/` matches any number of folders, including none."""
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
        if ".snap" not in parts[:-1]:
            return None
        return parts[parts.index(".snap") + 1]

    @property
    def location(self) -> str:
        """The path of the folder without the file system's snapshot, whose name may change from build to build."""
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
    """The fields of a JSON object, or the columns of a table, that say where a document comes from. Web archives have
    the URL and the date of each page without these fields."""

    url: Text | None = None
    """The field with the document's URL."""
    license: Text | None = None
    """The field with its licence, or a list of its licences."""
    date: Text | None = None
    """The field with its date, as ISO 8601 writes it."""


class ReadingSection(RecipeSection):
    """How documents are read from files. A file's content and name tell its format (docs/datasets.md)."""

    format: Literal["text", "lines", "array", "object", "csv", "html", "warc"] | None = None
    """The format of all files that are not Parquet, whatever they look like; null detects the format of each file."""
    separator: Text | None = None
    """The text between two documents of a plain file, such as `<|endoftext|>`, or `"\\n"` for one document per line;
    null for one document per file."""
    encoding: Text | None = None
    """The encoding of plain files, JSON and tables that are not UTF-8, such as `cp1252` or `euc_jp`; null detects the
    encoding of each plain file."""
    text_field: Text = "text"
    """The field of a JSON object, or the column of a table, that holds the text."""
    metadata: MetadataSection = MetadataSection()
    whole_megabytes: Annotated[float, Field(gt=0)] | None = 1.0
    """The most megabytes of a plain file that becomes one document. A longer file is divided, where paragraphs or lines
    end, into parts of about a sixteenth of this size. Null divides no file."""
    longest_megabytes: Annotated[float, Field(gt=0)] = 16.0
    """The most megabytes of text in a document; longer documents are left out. The limit bounds a reader's memory."""
    quarantine: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The build fails if the share of unreadable documents, or of files that break off, is above this (0 to 1)."""

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        try:
            b"  ".decode(encoding or "utf-8")  # Python looks up the encoding only if there are bytes to decode
        except UnicodeError:
            return encoding
        except (LookupError, ValueError):
            raise ValueError("expected an encoding that Python knows") from None
        return encoding

    def content(self) -> dict[str, Any]:
        """The fields that decide which documents a file holds, as JSON."""
        content = self.model_dump(mode="json", exclude={"quarantine"})
        if self.whole_megabytes == ReadingSection.model_fields["whole_megabytes"].default:
            del content["whole_megabytes"]  # recipes from before this field keep their hashes
        return content


class ImagesSection(RecipeSection):
    """Labelled images in the rows of Parquet files, instead of texts. All images are resized to one size."""

    height: Count
    """The height of every image, in pixels."""
    width: Count
    """The width of every image, in pixels."""
    channels: Literal[1, 3, 4] = 3
    """Channels per pixel: 1 for grey, 3 for RGB, 4 for RGBA."""
    image_field: Text = "image"
    """The column with the image: a PNG or JPEG, a struct that has one in `bytes`, or a list of the pixels' bytes."""
    label_field: Text = "label"
    """The column with the class, as a whole number or text."""
    largest_megapixels: Annotated[float, Field(gt=0)] = 50.0
    """The most megapixels of an image; larger images are left out. The limit bounds a reader's memory."""
    shard_megabytes: Annotated[float, Field(gt=0)] = 32.0
    """Megabytes of pixels in an average shard; the size of a shard is between 0.5 and 1.5 times this."""


class TokenizerSection(RecipeSection):
    """A byte-level BPE tokenizer: an existing one, or one that is trained once, on the first training split."""

    vocab_size: Annotated[int, Field(ge=257)] = 8192
    """The size of the vocabulary: the 256 bytes, the end-of-document token, and the merges."""
    edition: Count = 1
    """Raise this number to train a new tokenizer on the current documents. Every shard changes with it."""
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """The most megabytes of text to train the tokenizer on: a sample of the training documents, chosen by hash."""
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
    """The share of the documents, between 0 and 1, that is held out for validation. Their hashes decide which."""


class ShardsSection(RecipeSection):
    """How the tokens are divided into shards."""

    tokens: Count = 16_777_216
    """Tokens in an average shard; the size of a shard is between 0.5 and 1.5 times this."""


class ChecksSection(RecipeSection):
    """The limits of the checks on a new snapshot. A failed check blocks the assets that depend on the snapshot."""

    drift: Annotated[float, Field(gt=0)] = 0.25
    """The largest population stability index of lengths and languages, or of classes, against the parent snapshot."""
    left_out: Annotated[float, Field(ge=0, le=1)] = 0.9
    """The largest share of the documents read that cleaning and comparison may leave out."""
    contaminated: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The largest share of the documents that may be left out because they share text with an evaluation set."""
    shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The largest share of its parent's bytes (of text, or of pixels) that a snapshot may lose."""
    removal: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The share of documents that one rule leaves out may differ from the parent's share by at most this."""
    language: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The largest share of its bytes that a language may lose, compared with the parent."""
    source: Annotated[float, Field(ge=0, le=1)] = 0.9
    """The largest share of its bytes that a source (a top-level folder) may lose, compared with the parent."""
    queries: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$")], Text] = Field(default={})
    """Your own checks, by name: a DuckDB query over the tables `documents` and `parent` that returns rows that should
    not exist (docs/datasets.md)."""


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
    `compute.dask` in the platform's settings. The default is `dask` if the settings have it. The result is the same."""
    resources: dict[str, Quantity] = Field(default={})
    """The resources of the pods that build the dataset on a cluster, such as `memory: 128Gi`. The cluster's settings
    decide the resources that are not named here."""

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
        """Whether the file at `path`, relative to the source, is selected. For images, only Parquet files are."""
        return self.source.selects(path) and (self.images is None or path.lower().endswith(".parquet"))

    def content(self) -> dict[str, Any]:
        """The fields that decide the snapshot's content, as JSON.

        They leave out where the files are: the snapshot's provenance has the names and contents of the files.
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
