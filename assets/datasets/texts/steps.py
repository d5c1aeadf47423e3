"""The steps of a dataset of texts: documents, tokenizer and snapshot, each made once for the same inputs.

Each step takes the last result of the step before it, so the three can run at different times. The cost of a step
depends on the changes since the last build: only new documents are encoded, and only shards around a change are
written.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import BYTES, BuildLog, BuildPhase, quiet
from slipway.assets.datasets.building.step_cache import Record, StepCache
from slipway.assets.datasets.documents import document_step, document_table
from slipway.assets.datasets.documents.document_table import DocumentTable
from slipway.assets.datasets.snapshots import snapshot_step
from slipway.assets.datasets.texts import snapshot, tokenizer
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import verify
from slipway.trainer.data import shards


def make_documents(recipe: DatasetRecipe, durable: Path, log: BuildLog = quiet) -> Record:
    """The documents table of the present source. Raises as `document_step.make` does."""
    return document_step.make(recipe, TEXT_DOCUMENTS, durable, log)


def make_tokenizer(recipe: DatasetRecipe, durable: Path, log: BuildLog = quiet) -> Record:
    """The tokenizer of the recipe. Once trained, it is kept until the recipe requests another one.

    It is trained on a sample of the train split of the latest documents. Raises ValueError when there are no
    documents, and for a `tokenizer.file` that is not a tokenizer.
    """
    documents = document_step.latest(recipe, durable)

    with begin_build(recipe, TEXT_DOCUMENTS, durable, log) as build:

        def make() -> tuple[dict[str, Any], list[Path]]:
            table = document_table.path(durable, documents.result["blake3"])
            index = document_step.index_of(documents, durable)
            file = recipe.tokenizer.file

            def between(after: float, megabytes: float) -> Iterator[str]:
                return tokenizer.sample(build, table, index, megabytes, after)

            if file is None:
                data = _trained(recipe, between, log)
            else:
                data = tokenizer.existing(Path(file), between(0.0, tokenizer.COMPARED_MEGABYTES))
            tokenizer_record = tokenizer.write(durable, data, build.scratch)
            return dataclasses.asdict(tokenizer_record), [tokenizer.path(durable, tokenizer_record.sha256)]

        return build.once("tokenizer", _tokenizer_inputs(recipe), make)


def _trained(recipe: DatasetRecipe, between: tokenizer.Between, log: BuildLog) -> bytes:
    """The JSON of a tokenizer that is trained on the sample, or on as much of it as fits into memory."""
    megabytes = recipe.tokenizer.megabytes
    affordable = tokenizer.affordable_megabytes(megabytes, between, tokenizer.splitting())
    if affordable < megabytes:
        log(
            f"the tokenizer is trained on {affordable:,.0f} of {megabytes:,.0f} MB: "
            "the text has too many different words"
        )
    phase = BuildPhase(log, "reading the tokenizer's sample", None, BYTES)

    def read() -> Iterator[str]:
        for text in between(0.0, affordable):
            yield text
            phase.add(len(text.encode()))
        log("merging: the tokenizer's sample is read")

    return tokenizer.train(read(), recipe.tokenizer.vocab_size)


def make_snapshot(recipe: DatasetRecipe, durable: Path, log: BuildLog = quiet) -> Record:
    """The snapshot of the latest documents and tokenizer. Raises ValueError if either is not made yet."""
    documents = document_step.latest(recipe, durable)
    plan = _plan(recipe, documents, latest_tokenizer(recipe, durable))

    with begin_build(recipe, TEXT_DOCUMENTS, durable, log) as build:

        def write() -> shards.TextSnapshot:
            index = document_step.index_of(documents, durable)
            parent = _parent(plan, durable)
            return snapshot.write(build, plan, index, parent)

        return snapshot_step.make(build, _snapshot_inputs(plan), write)


def latest_tokenizer(recipe: DatasetRecipe, durable: Path) -> shards.TokenizerRecord:
    """The last tokenizer. Raises ValueError if there is none."""
    return shards.TokenizerRecord(**StepCache(durable, recipe.name).last_made("tokenizer").result)


def up_to_date(recipe: DatasetRecipe, durable: Path) -> str | None:
    """The SHA-256 of the snapshot that recipe and source give now, if the dataset points at it already.

    Nothing is read but the source's listing. Raises ValueError as `sources.list_source` does.
    """
    documents = document_step.recall(recipe, TEXT_DOCUMENTS, durable)
    tokenizer_step = StepCache(durable, recipe.name).recall("tokenizer", _tokenizer_inputs(recipe))
    if documents is None or tokenizer_step is None:
        return None
    plan = _plan(recipe, documents, shards.TokenizerRecord(**tokenizer_step.result))
    return snapshot_step.current_if_made_of(_snapshot_inputs(plan), durable, recipe.name)


def _plan(recipe: DatasetRecipe, documents: Record, tokenizer_record: shards.TokenizerRecord) -> snapshot.TextPlan:
    return snapshot.TextPlan(
        dataset=recipe.name,
        recipe_sha256=snapshot_step.recipe_sha256(recipe),
        source=documents.inputs["source"],
        table=DocumentTable(**documents.result),
        tokenizer=tokenizer_record,
        shard_tokens=recipe.shards.tokens,
    )


def _parent(plan: snapshot.TextPlan, durable: Path) -> shards.TextSnapshot | None:
    """The last snapshot if it has the tokens of this tokenizer, because the new one may share its shards."""
    parent = snapshot_step.latest(durable, plan.dataset)
    if isinstance(parent, shards.TextSnapshot) and parent.tokenizer == plan.tokenizer:
        return parent
    return None


def _tokenizer_inputs(recipe: DatasetRecipe) -> dict[str, Any]:
    """Everything that decides the tokenizer. The documents do not, so a growing dataset keeps its tokenizer."""
    inputs = recipe.tokenizer.model_dump(mode="json")
    file = inputs.pop("file")
    if file is not None:
        inputs = {"file": verify.measure(Path(file)).blake3}
    return {"version": tokenizer.VERSION, **inputs}


def _snapshot_inputs(plan: snapshot.TextPlan) -> dict[str, Any]:
    """Everything that decides the snapshot's bytes."""
    return {
        "version": snapshot.VERSION,
        "recipe": plan.recipe_sha256,
        "source": plan.source,
        "documents": plan.table.blake3,
        "tokenizer": plan.tokenizer.sha256,
        "shards": plan.shard_tokens,
    }
