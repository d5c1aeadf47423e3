"""Datasets by hand: ``python -m assets.datasets history NAME``, ``… diff NAME [OLD] [NEW]``.

A snapshot is named by the beginning of its SHA-256, or by how many changes ago the dataset pointed at it: ``~1``.
"""

import argparse
import sys
from pathlib import Path

from assets.datasets import garbage
from assets.datasets.difference import Difference, difference
from resources.home import Home
from trainer import shards


def find(durable: Path, dataset: str, name: str) -> shards.Snapshot:
    """The snapshot of a dataset that `name` means. Raises ValueError when it means none, or several."""
    known = garbage.history(durable, dataset)
    if not known:
        raise ValueError(f"dataset {dataset}: found no snapshot in {durable}, expected one: materialise it first")
    if name.startswith("~"):
        found = known[-1 - int(name[1:])] if name[1:].isdigit() and int(name[1:]) < len(known) else None
        meant = [found] if found else []
    else:
        meant = [sha256 for sha256 in known if sha256.startswith(name)]
    if len(meant) != 1:
        listed = ", ".join(sha256[:12] for sha256 in known)
        raise ValueError(f"dataset {dataset}: {name} means {len(meant)} snapshots, expected one of {listed}")
    return shards.read_manifest(durable, meant[0])


def show_history(durable: Path, dataset: str) -> None:
    """One line for each snapshot, the latest last."""
    known = garbage.history(durable, dataset)
    for ago, sha256 in zip(range(len(known) - 1, -1, -1), known, strict=True):
        try:
            made = shards.read_manifest(durable, sha256)
        except ValueError as error:
            print(f"~{ago}  {sha256[:12]}  {error}")
            continue
        documents = sum(split.documents for split in made.splits.values())
        tokens = sum(split.tokens for split in made.splits.values())
        print(f"~{ago}  {sha256[:12]}  {documents:,} documents  {tokens:,} tokens  {len(made.shards())} shards")


def show_difference(old: shards.Snapshot, new: shards.Snapshot, found: Difference) -> None:
    print(f"{old.sha256[:12]} to {new.sha256[:12]}")
    if found.documents is None:
        print("documents: a documents table is gone, so they cannot be compared")
    else:
        for kind in ("added", "removed", "changed", "same"):
            examples = ", ".join(found.documents.examples.get(kind, ()))
            print(f"documents {kind}: {getattr(found.documents, kind):,}{f' ({examples})' if examples else ''}")
    print(
        f"tokens: {found.tokens[0]:,} to {found.tokens[1]:,}{'' if found.same_tokenizer else ', of another tokenizer'}"
    )
    print(f"shards: {found.shared_shards} of {found.shards} shared, {found.new_bytes / 1e6:,.1f} MB to move")


def main(arguments: list[str] | None = None) -> int:
    """Say what was asked for; 1 and a message when it cannot be said."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "history":
            show_history(options.durable, options.dataset)
        else:
            old, new = (find(options.durable, options.dataset, name) for name in (options.old, options.new))
            show_difference(old, new, difference(old, new, options.durable))
    except (ValueError, OSError) as error:
        print(f"datasets: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m assets.datasets", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--durable", type=Path, default=Home.of().durable, help="folder of the durable tier")
    commands = parser.add_subparsers(dest="command", required=True)
    history = commands.add_parser("history", help="the snapshots that a dataset has pointed at")
    history.add_argument("dataset")
    compare = commands.add_parser("diff", help="what one snapshot has otherwise than another")
    compare.add_argument("dataset")
    compare.add_argument("old", nargs="?", default="~1", help="~1, the one before the last, by default")
    compare.add_argument("new", nargs="?", default="~0", help="~0, the last, by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
