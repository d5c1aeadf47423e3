"""What the commands of datasets print of a comparison, an inspection and a takedown, line by line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category

from slipway.trainer.base.quantities import bytes_in_words, counted

if TYPE_CHECKING:
    from slipway.assets.datasets.garbage import Garbage
    from slipway.assets.datasets.inspection import Inspection
    from slipway.assets.datasets.snapshots.difference import SnapshotDifference
    from slipway.operations.takedown import TakedownReport

MAX_GROUPS = 10
"""Rules, languages and sources that a comparison of snapshots shows of each, those that differ most first."""
MAX_LISTED = 20
"""Documents, snapshots and trainings that a takedown shows of each."""


def difference(comparison: "SnapshotDifference") -> Sequence[str]:
    lines = ["documents: a documents table is gone, so they cannot be compared"]
    if comparison.documents is not None:
        lines = []
        for kind in ("added", "removed", "changed", "same"):
            examples = ", ".join(comparison.documents.examples.get(kind, ()))
            lines.append(
                f"documents {kind}: {getattr(comparison.documents, kind):,}{f' ({examples})' if examples else ''}"
            )
    for kind, changed in comparison.groups.items():
        what = "left out by rule" if kind == "rule" else kind
        for group in changed[:MAX_GROUPS]:
            was = group.before
            now = group.now
            sizes = f"{bytes_in_words(was.bytes)} to {bytes_in_words(now.bytes)}"
            lines.append(f"{what} {group.name}: {was.documents:,} to {now.documents:,} documents, {sizes}")
        lines += [f"{what}: {len(changed) - MAX_GROUPS} more differ"] if len(changed) > MAX_GROUPS else []
    other = "" if comparison.same_tokenizer else ", of another tokenizer"
    if any(comparison.tokens):  # pictures have none
        lines.append(f"tokens: {comparison.tokens[0]:,} to {comparison.tokens[1]:,}{other}")
    lines.append(
        f"shards: {comparison.shared_shards} of {comparison.shards} shared, "
        f"{bytes_in_words(comparison.new_bytes)} to move"
    )
    return [_printable(line) for line in lines]


def inspection(report: "Inspection") -> Sequence[str]:
    share = report.remaining / max(report.rows, 1)
    lines = [
        f"{report.dataset} {report.snapshot[:12]}: {report.remaining:,} of {report.rows:,} documents "
        f"are kept ({share:.1%})"
    ]
    for heading, totals in (("split", report.splits), ("language", report.languages)):
        for total in totals:
            documents = counted(total.documents, "document")
            lines.append(f"{heading} {total.name}: {documents}, {bytes_in_words(total.bytes)}")
    for removal in report.removals:
        lines.append(f"left out, {removal.reason}: {removal.documents:,} ({removal.documents / report.rows:.1%})")
        for example in removal.examples:
            lines.append(f"  {example.document}{f': because of {example.because}' if example.because else ''}")
            lines += [f"      {example.begins}"] if example.begins else []
    lines += [] if report.removals else ["no document was left out"]
    lines += [f"not read, {file.reason}: {file.name}" for file in report.files_left_out]
    return [_printable(line) for line in lines]


def _printable(line: str) -> str:
    """A line as a terminal may show it: a file's name may have newlines and commands to terminals."""
    return "".join(f"\\x{ord(character):02x}" if category(character) == "Cc" else character for character in line)


def takedown(report: "TakedownReport") -> Sequence[str]:
    would, stays = ("", "stays") if report.snapshot else ("would be ", "would stay")
    named = (
        f"{document} ({report.urls[document]})" if report.under and document in report.urls else document
        for document in report.documents
    )
    lines = _first([f"{would}taken down: {document}" for document in named], f"{would}taken down") or [
        f"its source has no document of this any more; it {stays} out if it comes back"
    ]
    lines += [f"under {area}: {counted(count, 'document')}" for area, count in report.under.items()]
    lines += _first([f"nearly equal, not taken down (--near): {document}" for document in report.near], "nearly equal")
    if report.snapshot:
        lines += [f"{report.dataset} points at snapshot {report.snapshot}"]
    snapshots = [f"in snapshot {sha256[:12]} of {dataset}" for sha256, dataset in report.snapshots.items()]
    lines += _first(snapshots, "snapshots with them") or [f"in no {'other ' if report.snapshot else ''}snapshot"]
    lines += [
        f"dataset {other} has had them too; to take them out of it: slipway data takedown {other}"
        for other in sorted(set(report.snapshots.values()) - {report.dataset})
    ]
    exposures = _first([f"seen by training {training}" for training in report.trainings], "trainings that saw them")
    exposures += [
        f"training {training} waits to read it; to stop it: slipway stop {training}" for training in report.waiting
    ]
    exposures += _first([f"seen by model {model}" for model in report.models], "models that saw them")
    lines += exposures or ["seen by no training, and by no registered model"]
    lines += [] if report.snapshot else [f"{_total(report)}; nothing is noted yet; to take them down: --apply"]
    return [_printable(line) for line in lines]


def _total(report: "TakedownReport") -> str:
    files = len({document.rpartition("#")[0] for document in report.documents})
    return f"{counted(len(report.documents), 'document')} of {counted(files, 'file')}"


def listed_urls(path: Path) -> list[str]:
    """The URLs of a file, one a line; lines that begin with # are comments. Raises ValueError for a file that cannot
    be read, or has none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"--urls {path}: found {why}, expected a file with a URL in each line") from None
    urls = [url for line in lines if (url := line.strip()) and not url.startswith("#")]
    if not urls:
        raise ValueError(f"--urls {path}: found no URL, expected a file with a URL in each line")
    return urls


def _first(lines: list[str], what: str) -> list[str]:
    """The first lines, and how many more there are."""
    more = [f"{what}: {len(lines) - MAX_LISTED:,} more; all of them: --json"] if len(lines) > MAX_LISTED else []
    return lines[:MAX_LISTED] + more


def garbage(collection: "Garbage", applied: bool) -> str:
    files = (
        f"{counted(len(collection.files), 'file')} of {bytes_in_words(collection.bytes)}"
        if collection.files
        else "nothing"
    )
    how = "" if applied or not collection.files else "; to remove it: --apply"
    return (
        f"{'removed' if applied else 'would remove'} {files}; snapshots that stay: {collection.kept_snapshots:,}{how}"
    )
