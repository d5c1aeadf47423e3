"""The post-mortem of an incident: one page in Markdown, from its report and its evidence. It has no picture."""

import re
import time
from collections.abc import Iterator

from slipway.resources.trainings import tails
from slipway.resources.trainings.incident_reports import OVER, RECOVERING, WAITING, IncidentReport
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base.counting import counted
from slipway.trainer.diagnosis import folder
from slipway.trainer.diagnosis.folder import DiagnosisManifest
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.tokens import Token

RANKS, STACK_LINES, LOG_LINES, NODES = 8, 24, 12, 4
"""Of so many ranks, so many lines of the stack are shown, and so many lines of the log of so many nodes."""
WHOLE = 2000
"""So many characters of a cause are shown where it stands alone: a sentence about many ranks, and not a log."""
UNKNOWN = "unknown cause"
"""What a person reads in place of the class of a cause where the platform knows none."""
_IN_C = re.compile(r"frame #\d+: |<omitting python frames>")
"""Lines with which PyTorch's C++ explains an exception: twenty of them would hide the sentence before them."""


def text(store: TrainingStore, report: IncidentReport) -> str:
    """The whole page. Raises OSError."""
    parts = [_head(report), _cost(report), _suspects(report), _evidence(store, report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: IncidentReport) -> str:
    """What happened and what it cost, in one line."""
    return f"{happened(report)}; {cost(report)}"


def happened(report: IncidentReport) -> str:
    """What happened, where and after which step, in one line."""
    named = [*report.nodes, *(f"rank {rank}" for rank in report.ranks)]
    where = ", ".join(each for each in named if each not in report.cause)
    cause, at = first_line(report.cause), f"after step {report.step:,}"
    return f"{where + ': ' if where else ''}{cause}{'' if at in cause else f', {at}'}"


def first_line(cause: str, length: int = 160) -> str:
    """The first line of a cause, cut to so many characters."""
    line = (cause.splitlines() or [""])[0]
    return line if len(line) <= length else f"{line[: length - 3]}..."


def cost(report: IncidentReport) -> str:
    """Steps and seconds lost, as far as they are known."""
    if report.survived:
        return "no step followed yet" if report.state == WAITING else "the training went on"
    if report.seconds_lost is None and report.steps_lost is not None:
        return f"{counted(report.steps_lost, 'step')} lost, and seconds that are not on record"
    if report.seconds_lost is None:
        return "what it cost is not known yet" if report.state == RECOVERING else "no step followed"
    if report.steps_lost is None:
        return f"{report.seconds_lost:,.1f} s lost until the next incident"
    return f"{report.seconds_lost:,.1f} s and {counted(report.steps_lost, 'step')} lost"


def went_on(report: IncidentReport) -> str:
    """Where the training went on, and by whom."""
    if report.survived and report.kind == causes.PLATFORM:
        return "nowhere yet" if report.state == WAITING else "the same start went on"
    if report.survived:
        return "the same ranks went on"
    if not report.resumed:
        return "nowhere yet" if report.state == RECOVERING else "nowhere"
    return f"{Token.parse(report.resumed).words}{ran_on(report)}, claimed by {report.resumed_by}"


def ran_on(report: IncidentReport) -> str:
    """The nodes on which the training went on, and from which step; begins with a space where there is any."""
    from_step = f" from step {report.resumed_from:,}" if report.resumed_from is not None else ""
    return (f" on {', '.join(report.resumed_on)}" if report.resumed_on else "") + from_step


def named(report: IncidentReport) -> str:
    """The nodes and ranks with which it began; empty where none is known."""
    return ", ".join([*report.nodes, *(f"rank {rank}" for rank in report.ranks)])


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _head(report: IncidentReport) -> str:
    todo = report.todo or ("nothing" if report.state == OVER else "nothing: it recovers by itself")
    rows = {
        "when": f"{when(report.at)}, after step {report.step:,}",
        "cause": f"{report.kind or UNKNOWN}: {first_line(report.cause, WHOLE)}",
        "noticed by": report.noticed_by,
        "nodes": ", ".join(report.nodes) or "not known",
        "ranks": ", ".join(map(str, report.ranks)) or "not known",
        "action": report.action,
        "went on": went_on(report),
        "state": report.state,
        "cost": cost(report),
        "to be done by a person": todo,
    }
    lines = [f"# Incident {report.name}", "", headline(report), "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {_cell(value)} |" for name, value in rows.items())])


def _cost(report: IncidentReport) -> str:
    if not report.seconds:
        return ""
    rows = [f"| {buckets.TITLES[bucket]} | {seconds:,.2f} |" for bucket, seconds in report.seconds.items()]
    return "\n".join(["## Seconds", "", "| spent on | seconds |", "|---|---:|", *rows])


def _suspects(report: IncidentReport) -> str:
    rows = [f"- rank {each.rank}{f' on {each.node}' if each.node else ''}: {each.why}" for each in report.suspects]
    return "\n".join(["## Suspects", "", *rows]) if rows else ""


def _evidence(store: TrainingStore, report: IncidentReport) -> str:
    found = folder.manifests(store.folder, report.id)
    ends = {} if found else tails.kept(store, report.incarnation)
    parts = [f"## Evidence\n\nIn `{incidents.evidence(store.folder, report.id)}`."] if found else []
    if ranks := [(each, rank) for each in found for rank in each.ranks]:
        rows = [
            f"| {rank.rank} | {each.node} | {rank.state} | {_cell(rank.exchange or '-')} | {_cell(rank.where or '-')} |"
            for each, rank in ranks
        ]
        parts.append(
            "\n".join(["| rank | node | state | exchange | innermost call |", "|---:|---|---|---|---|", *rows])
        )
    parts += _stacks(store, report, found)
    chosen = [each.node for each in found if not report.nodes or each.node in report.nodes] or [e.node for e in found]
    parts += [_block(f"End of the log of {node}", _log(store, report, node), LOG_LINES) for node in chosen[:NODES]]
    parts += [_block(f"End of the log of {node}", log, LOG_LINES) for node, log in list(ends.items())[:NODES]]
    if report.kernel:
        parts.append("\n".join(["What the kernels logged:", "", *(f"- {said}" for said in report.kernel)]))
    if report.lacking:
        rows = [f"- {what}: {why}" for what, why in report.lacking.items()]
        parts.append("\n".join(["What could not be had:", "", *rows]))
    return "\n\n".join(part for part in parts if part)


def _stacks(store: TrainingStore, report: IncidentReport, found: list[DiagnosisManifest]) -> Iterator[str]:
    """The stack of the thread that trains, of the suspects and the ranks named first."""
    first = {*report.ranks, *(each.rank for each in report.suspects)}
    sections = []
    for each in found:
        written = folder.text(store.folder, report.id, each.node, "stacks.txt")
        for section in re.split(r"(?m)^=== ", written)[1:]:
            title, _, body = section.partition("\n")
            rank = int(re.findall(r"\d+", title)[0])
            sections.append((rank not in first, rank, f"Rank {title.rstrip('= ').removeprefix('rank ')}", body))
    for _, _, title, body in sorted(sections)[:RANKS]:
        yield _block(title, _training_thread(body), STACK_LINES, from_end=False)


def _training_thread(body: str) -> str:
    """The part of a dump that is of the main thread: the last one whose outermost call is not a thread's start."""
    threads = re.split(r"(?m)^(?=(?:Current thread|Thread) 0x)", body)
    main = [each for each in threads if each.strip() and "in _bootstrap\n" not in each and "File " in each]
    fatal = [each for each in threads if each.startswith("Fatal Python error")]
    return "\n".join([*(each.strip() for each in fatal), (main[-1] if main else body).strip()])


def _log(store: TrainingStore, report: IncidentReport, node: str) -> str:
    return folder.text(store.folder, report.id, node, "log.txt")


def _block(title: str, content: str, lines: int, from_end: bool = True) -> str:
    kept = [line for line in content.rstrip().splitlines() if not _IN_C.match(line)]
    kept = kept[-lines:] if from_end else kept[:lines]
    return (
        "\n".join([f"{title}:", "", "```", *(line.replace("```", "'''")[:300] for line in kept), "```"]) if kept else ""
    )


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
