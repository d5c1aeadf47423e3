"""What the default recipe leaves out of corpora that Debian ships, and why, so that a surprise is seen.

``python -m benchmarks.corpora FOLDER [--show] [--pages FOLDER] [--only NAME ...]``: FOLDER has the packages' files,
unpacked and not installed, as these commands leave them (120 MB are downloaded):

    apt-get download linux-doc-6.1 wordnet-base gnome-user-docs \\
        manpages-{de,es,fr,it,ja,nl,pl,pt-br,ru,tr,uk,zh} libreoffice-help-{de,en-us,fr,ja,km}
    for each in *.deb; do dpkg-deb -x $each FOLDER; done

The snapshot of each corpus is made with a recipe that names its folder alone. Printed are the share of the documents
that is kept, the share that each reason left out, the documents of the largest languages, tokens, and how many checks
fail. `--show` tells three documents of each reason with what shows it, on standard error; `--pages` keeps the page of
each dataset.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import dagster as dg
import duckdb

from slipway.assets.datasets.assets import build
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.inspection import first_characters
from slipway.assets.datasets.page import PAGE
from slipway.assets.datasets.texts import steps
from slipway.assets.datasets.texts.checks import CHECKS, outcomes
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import warehouse
from slipway.resources.tiers import Tiers
from slipway.trainer.data import shards

EXAMPLES = """
    SELECT name || '#' || number, because FROM read_parquet($table)
    WHERE removed = $reason ORDER BY hash(name, number) LIMIT 3
"""


CORPORA = {
    "kernel documentation, HTML": "usr/share/doc/linux-doc-*/html",
    "kernel documentation, reStructuredText": "usr/share/doc/linux-doc-*/Documentation",
    "man pages of many languages": "usr/share/man",
    "WordNet": "usr/share/wordnet",
    "GNOME's help": "usr/share/help",
    "LibreOffice's help": "usr/share/libreoffice/help",
}
"""The folder of each corpus below the unpacked packages; a star stands for a version."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpora")
    parser.add_argument("folder", type=Path, help="the unpacked packages")
    parser.add_argument("--only", nargs="*", default=list(CORPORA), choices=list(CORPORA), metavar="NAME")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="keep the page of each dataset here")
    parser.add_argument("--show", action="store_true", help="documents of each reason, on standard error")
    options = parser.parse_args()
    for name in options.only:
        folder = next(iter(sorted(options.folder.glob(CORPORA[name]))), None)
        if folder is None:
            print(f"corpora: without {name}: {options.folder}/{CORPORA[name]} is not there", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            _measure(name, folder, Path(scratch), options.show, options.pages)


def _measure(name: str, folder: Path, durable: Path, show: bool, pages: Path | None) -> None:
    """Build the corpus, and print what became of its documents."""
    recipe = DatasetRecipe.model_validate({"name": "corpus", "source": {"kind": "directory", "path": str(folder)}})
    begun = _cpu()
    try:
        record = steps.make_documents(recipe, durable)
    except ValueError as error:
        print(f"corpora: {name}: {error}", file=sys.stderr)
        return _print(f"{name}: the build is refused", "", "lower", 1.0)
    cpu = _cpu() - begun
    table = document_table.path(durable, record.result["blake3"])
    statistics = warehouse.statistics(table, top=12)
    _print(f"{name}: documents", "documents", "higher", statistics.rows)
    _print(f"{name}: kept", "share", "higher", statistics.documents / statistics.rows)
    for removal in statistics.removals:
        _print(f"{name}: {removal.reason}", "share", "lower", removal.documents / statistics.rows)
    for language in statistics.languages:
        _print(f"{name}: in {language.name}", "documents", "higher", language.documents)
    left_out = record.inputs["source"]["left_out"]
    for reason, files in left_out.items():
        _print(f"{name}: files left out, {reason}", "files", "lower", files)
    _print(f"{name}: source files read, cleaned and compared", "MB/CPU-s", "higher", _size(record) / 1e6 / cpu)
    _snapshot(name, recipe, durable)
    if pages is not None and (page := durable / "datasets" / "corpus" / PAGE).exists():
        pages.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, pages / f"{name}.html")
    if show:
        _show(table, durable, statistics.removals)


def _size(record: Any) -> int:
    return int(record.inputs["source"]["bytes"])


def _snapshot(name: str, recipe: DatasetRecipe, durable: Path) -> None:
    """Carry the documents through tokenizer and snapshot, as a person does, and print what came of it."""
    tiers = Tiers(durable=str(durable), nvme=str(durable / "{node}"))
    with dg.DagsterInstance.ephemeral() as instance:
        try:
            build(recipe, tiers, instance, lambda line: None)
        except ValueError as error:
            print(f"corpora: {name}: {error}", file=sys.stderr)
    snapshot = shards.read_manifest(durable, steps.make_snapshot(recipe, durable).result["sha256"])
    failing = [
        check
        for check, outcome in zip(CHECKS, outcomes(recipe, snapshot, None, durable), strict=True)
        if outcome.blocks
    ]
    for split, tokens_of_split in snapshot.splits.items():
        _print(f"{name}: tokens, {split}", "tokens", "higher", tokens_of_split.tokens)
    train = snapshot.splits["train"]
    _print(f"{name}: bytes of text for each token", "bytes", "higher", train.text_bytes / max(train.tokens, 1))
    _print(f"{name}: checks that fail", "checks", "lower", len(failing), aim=0)


def _show(table: Path, durable: Path, removals: tuple[warehouse.RemovalCount, ...]) -> None:
    index = next((durable / "datasets/corpus/extracts").iterdir())
    with duckdb.connect() as connection:
        for removal in removals:
            cursor = connection.execute(EXAMPLES, {"table": str(table), "reason": removal.reason})
            for document, because in cursor.fetchall():
                print(f"  {removal.reason}: {document}: {because}", file=sys.stderr)
                print(f"      {first_characters(index, durable, document)}", file=sys.stderr)


def _cpu() -> float:
    """User and system time of this process and of those that it started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def _print(metric: str, unit: str, better: str, value: float, aim: float | None = None) -> None:
    line = {"benchmark": "corpora", "metric": metric, "unit": unit, "better": better}
    print(json.dumps({**line, "ours": value, "peers": {}, "aim": aim}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
