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

SHOWN = 10
"""Rules, languages and sources that a comparison of snapshots shows of each, those that differ most first."""
LISTED = 20
"""Documents, snapshots and trainings that a takedown shows of each."""


def difference(found: "SnapshotDifference") -> Sequence[str]:
    lines = ["documents: a documents table is gone, so they cannot be compared"]
    if found.documents is not None:
        lines = []
        for kind in ("added", "removed", "changed", "same"):
            examples = ", ".join(found.documents.examples.get(kind, ()))
            lines.append(f"documents {kind}: {getattr(found.documents, kind):,}{f' ({examples})' if examples else ''}")
    for kind, changed in found.groups.items():
        what = "left out by rule" if kind == "rule" else kind
        for each in changed[:SHOWN]:
            was, now = each.before, each.now
            sizes = f"{bytes_in_words(was.bytes)} to {bytes_in_words(now.bytes)}"
            lines.append(f"{what} {each.name}: {was.documents:,} to {now.documents:,} documents, {sizes}")
        lines += [f"{what}: {len(changed) - SHOWN} more differ"] if len(changed) > SHOWN else []
    other = "" if found.same_tokenizer else ", of another tokenizer"
    if any(found.tokens):  # pictures have none
        lines.append(f"tokens: {found.tokens[0]:,} to {found.tokens[1]:,}{other}")
    lines.append(f"shards: {found.shared_shards} of {found.shards} shared, {bytes_in_words(found.new_bytes)} to move")
    return [_printable(line) for line in lines]


def inspection(found: "Inspection") -> Sequence[str]:
    share = found.remaining / max(found.rows, 1)
    lines = [
        f"{found.dataset} {found.snapshot[:12]}: {found.remaining:,} of {found.rows:,} documents are kept ({share:.1%})"
    ]
    for heading, totals in (("split", found.splits), ("language", found.languages)):
        for total in totals:
            documents = counted(total.documents, "document")
            lines.append(f"{heading} {total.name}: {documents}, {bytes_in_words(total.bytes)}")
    for removal in found.removals:
        lines.append(f"left out, {removal.reason}: {removal.documents:,} ({removal.documents / found.rows:.1%})")
        for example in removal.examples:
            lines.append(f"  {example.document}{f': because of {example.because}' if example.because else ''}")
            lines += [f"      {example.begins}"] if example.begins else []
    lines += [] if found.removals else ["no document was left out"]
    lines += [f"not read, {file.reason}: {file.name}" for file in found.files_left_out]
    return [_printable(line) for line in lines]


def _printable(line: str) -> str:
    """A line as a terminal may show it: a file's name may have newlines and commands to terminals."""
    return "".join(f"\\x{ord(each):02x}" if category(each) == "Cc" else each for each in line)


def takedown(report: "TakedownReport") -> Sequence[str]:
    would, stays = ("", "stays") if report.snapshot else ("would be ", "would stay")
    named = (
        f"{each} ({report.urls[each]})" if report.under and each in report.urls else each for each in report.documents
    )
    lines = _first([f"{would}taken down: {each}" for each in named], f"{would}taken down") or [
        f"its source has no document of this any more; it {stays} out if it comes back"
    ]
    lines += [f"under {area}: {counted(count, 'document')}" for area, count in report.under.items()]
    lines += _first([f"nearly equal, not taken down (--near): {each}" for each in report.near], "nearly equal")
    if report.snapshot:
        lines += [f"{report.dataset} points at snapshot {report.snapshot}"]
    snapshots = [f"in snapshot {sha256[:12]} of {dataset}" for sha256, dataset in report.snapshots.items()]
    lines += _first(snapshots, "snapshots with them") or [f"in no {'other ' if report.snapshot else ''}snapshot"]
    lines += [
        f"dataset {other} has had them too; to take them out of it: slipway data takedown {other}"
        for other in sorted(set(report.snapshots.values()) - {report.dataset})
    ]
    seen = _first([f"seen by training {each}" for each in report.trainings], "trainings that saw them")
    seen += [f"training {each} waits to read it; to stop it: slipway stop {each}" for each in report.waiting]
    seen += _first([f"seen by model {each}" for each in report.models], "models that saw them")
    lines += seen or ["seen by no training, and by no registered model"]
    lines += [] if report.snapshot else [f"{_total(report)}; nothing is noted yet; to take them down: --apply"]
    return [_printable(line) for line in lines]


def _total(report: "TakedownReport") -> str:
    files = len({each.rpartition("#")[0] for each in report.documents})
    return f"{counted(len(report.documents), 'document')} of {counted(files, 'file')}"


def listed_urls(path: Path) -> list[str]:
    """The URLs of a file, one a line; lines that begin with # are comments. Raises ValueError for a file that cannot
    be read, or has none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"--urls {path}: found {why}, expected a file with a URL in each line") from None
    urls = [each for line in lines if (each := line.strip()) and not each.startswith("#")]
    if not urls:
        raise ValueError(f"--urls {path}: found no URL, expected a file with a URL in each line")
    return urls


def _first(lines: list[str], what: str) -> list[str]:
    """The first lines, and how many more there are."""
    more = [f"{what}: {len(lines) - LISTED:,} more; all of them: --json"] if len(lines) > LISTED else []
    return lines[:LISTED] + more


def garbage(found: "Garbage", applied: bool) -> str:
    files = f"{counted(len(found.files), 'file')} of {bytes_in_words(found.bytes)}" if found.files else "nothing"
    how = "" if applied or not found.files else "; to remove it: --apply"
    return f"{'removed' if applied else 'would remove'} {files}; snapshots that stay: {found.kept_snapshots:,}{how}"
