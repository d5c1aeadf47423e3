"""Findings: a measured value, the reference for this hardware, and the verdict. Nothing here measures."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

Verdict = Literal["excellent", "acceptable", "weak", "faulty", "no reference"]
EXCELLENT = 0.8
ACCEPTABLE = 0.6
FAULTY = 0.5
"""A rate above the first two shares of its reference is excellent or acceptable; below the third faulty; else weak."""
ORDER: tuple[Verdict, ...] = ("faulty", "weak", "acceptable", "excellent", "no reference")
"""The worst first."""
EVERYWHERE = "all nodes"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measured value of one rank or node, or of all together."""

    name: str
    value: float | str | None
    """None if it could not be measured; the note has the reason."""
    unit: str = ""
    verdict: Verdict = "no reference"
    reference: float | str | None = None
    source: str = ""
    """Where the reference comes from."""
    note: str = ""
    node: str = EVERYWHERE
    rank: int | None = None


def rate(
    name: str, value: float, unit: str, reference: float | None = None, source: str = "", note: str = ""
) -> Finding:
    """A value for which more is better, judged by its share of the reference."""
    verdict: Verdict = "no reference" if reference is None else _share(value / reference)
    return Finding(name=name, value=value, unit=unit, reference=reference, source=source, note=note, verdict=verdict)


def at_least(name: str, value: float, unit: str, least: float | None, source: str = "", note: str = "") -> Finding:
    """A value that must not be below `least`; None for no requirement."""
    return _required(rate(name, value, unit, None, source, note), least, least is None or value >= least)


def at_most(name: str, value: float, unit: str, most: float | None, source: str = "", note: str = "") -> Finding:
    """A value that must not be above `most`; None for no requirement."""
    return _required(rate(name, value, unit, None, source, note), most, most is None or value <= most)


def failed(name: str, reason: str) -> Finding:
    """A faulty finding: the measurement must work, and did not."""
    return Finding(name=name, value=None, verdict="faulty", note=reason)


def judged_by_expectation(findings: list[Finding], expected: dict[str, float]) -> list[Finding]:
    """The findings, judged by `expected` if it has their names; an expected value without a measurement is faulty."""
    unmeasured = expected.keys() - {finding.name for finding in findings}
    judged = [
        _judged_by(finding, expected[finding.name]) if finding.name in expected else finding for finding in findings
    ]
    return judged + [failed(name, "expected by the caller, but not measured") for name in sorted(unmeasured)]


def _judged_by(finding: Finding, reference: float) -> Finding:
    """The finding, judged by this reference: a number of GPUs must be reached in full, a rate by a share."""
    if not isinstance(finding.value, float | int):
        return finding
    judge = at_least if finding.unit == "GPUs" else rate
    again = judge(finding.name, finding.value, finding.unit, reference, "as the caller expects", finding.note)
    return replace(again, node=finding.node, rank=finding.rank)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The verdict on all of them together."""
    return min((finding.verdict for finding in findings), key=ORDER.index, default="no reference")


def lines(findings: list[Finding]) -> Iterator[str]:
    """A table: the verdict of each node and its findings; of several ranks it shows the slowest."""
    for node in dict.fromkeys(finding.node for finding in findings):
        node_findings = [finding for finding in findings if finding.node == node]
        yield f"{node}: {worst(node_findings)}"
        for name in dict.fromkeys(finding.name for finding in node_findings):
            same = [finding for finding in node_findings if finding.name == name]
            yield "  " + _line(min(same, key=_badness), len(same))


def as_json(findings: list[Finding]) -> dict[str, object]:
    """The same as JSON, with the findings of every rank."""
    nodes = {
        node: worst(finding for finding in findings if finding.node == node)
        for node in {finding.node for finding in findings}
    }
    return {"verdict": worst(findings), "nodes": nodes, "findings": [asdict(finding) for finding in findings]}


def _share(share: float) -> Verdict:
    if share > EXCELLENT:
        return "excellent"
    if share > ACCEPTABLE:
        return "acceptable"
    return "weak" if share >= FAULTY else "faulty"


def _required(finding: Finding, bound: float | None, is_met: bool) -> Finding:
    verdict: Verdict = "no reference" if bound is None else "excellent" if is_met else "faulty"
    return replace(finding, reference=bound, verdict=verdict, source=finding.source if bound is not None else "")


def _badness(finding: Finding) -> tuple[int, float]:
    """The worst verdict first, then the lowest value."""
    return ORDER.index(finding.verdict), finding.value if isinstance(finding.value, float | int) else 0.0


def _line(finding: Finding, ranks: int) -> str:
    reference = "" if finding.reference is None else f"of {_text(finding.reference)} ({finding.source})"
    slowest = f"lowest of {ranks} ranks, rank {finding.rank}" if ranks > 1 else ""
    rest = "; ".join(part for part in (reference, slowest, finding.note) if part)
    value = f"{_text(finding.value)} {finding.unit}"
    return f"{finding.verdict:<12}  {finding.name:<26} {value:<20} {rest}".rstrip()


def _text(value: float | str | None) -> str:
    if isinstance(value, float | int):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return value or "-"
