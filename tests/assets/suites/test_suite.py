"""A suite on disk: the same examples make the same suite, and what is gone or damaged is told with what to do."""

from pathlib import Path

import pytest

from slipway.assets.suites import suite
from slipway.assets.suites.suite import DOCUMENTS, Example, Suite

pytestmark = pytest.mark.pure
EXAMPLES = [
    Example(DOCUMENTS, "x", "a", "en"),
    Example(DOCUMENTS, "日本語 🎉 \x00 \u202e", "ü/ö", "ja"),
    Example("continuation", "1 + 1 = ", answers=("2", "3", "", "4"), right=0),
]


def written_suite(durable: Path, examples: list[Example]) -> Suite:
    return suite.write(durable, "held", {"edition": 1}, "0" * 64, examples)


def test_a_suite_reads_as_it_was_written_whatever_its_texts(tmp_path: Path):
    written = written_suite(tmp_path, EXAMPLES)
    stored = suite.read(tmp_path, written.sha256)
    assert stored == written and suite.examples(tmp_path, stored) == EXAMPLES
    assert dict(stored.tasks) == {DOCUMENTS: 2, "continuation": 1}
    assert written_suite(tmp_path / "again", EXAMPLES).sha256 == written.sha256


@pytest.mark.parametrize("examples", [[], EXAMPLES[2:]])
def test_a_suite_without_a_document_is_refused(tmp_path: Path, examples: list[Example]):
    with pytest.raises(ValueError, match="suite held: found no held-out document"):
        written_suite(tmp_path, examples)
    assert not (tmp_path / suite.FOLDER).exists()


@pytest.mark.parametrize("part", ["manifest", "examples"])
@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_suite_that_is_gone_or_damaged_is_reported_with_what_to_do(tmp_path: Path, part: str, fault: str):
    written = written_suite(tmp_path, EXAMPLES)
    path = suite.manifest_path(tmp_path, written.sha256) if part == "manifest" else suite.table_path(tmp_path, written)
    if fault == "gone":
        path.unlink()
    else:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match=r"restore the file from a backup, or raise the edition") as refused:
        suite.examples(tmp_path, suite.read(tmp_path, written.sha256))
    assert str(refused.value).startswith(str(path)) and ("gone" if fault == "gone" else "found") in str(refused.value)
