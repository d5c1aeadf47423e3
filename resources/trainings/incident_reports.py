"""Incident reports: what an incident cost, what was done, where the training went on, and what a person must do.

Everything comes from records: the incident record, the claims, the exits, and the ledger's end of the interrupted
generation and beginning of the next. The seconds come from the training's account, so that incidents, `slipway show`
and SQL agree. Read-only.
`post_mortem` makes one page in Markdown of a report and its evidence.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings import accounts, budgets, incidents, refusals
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.logs import kept_tails
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.base.quantities import counted
from slipway.trainer.diagnosis import folder
from slipway.trainer.diagnosis.folder import DiagnosisManifest
from slipway.trainer.diagnosis.suspects import Suspect, suspects
from slipway.trainer.record import causes, fence, files, heartbeat
from slipway.trainer.record import incidents as incident_records
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import InterruptionCost
from slipway.trainer.record.fence import Claim, Token
from slipway.trainer.record.incidents import IncidentRecord

OVER = "over"
RECOVERING = "recovering"
WAITING = "waits for a person"
STOPPED = "stopped by a person"
NOT_DONE = {
    WAITING: "nothing more: the training failed for good, and is not started again",
    STOPPED: "nothing more: a person stopped the training",
}
"""The action if no start followed, whatever was planned."""
HELD_BACK = "a new incarnation goes on from the newest checkpoint, after longer and longer pauses"
"""The action for a training that failed too often in a row through no fault of its own."""
END_BYTES = 64 << 10
"""How much is read of the end of an interrupted generation's ledger segment."""
BEGINNING_BYTES = 256 << 10
"""How much is read of the beginning of the next generation's ledger segment."""
TODO = {
    causes.CONFIGURATION: "correct in the recipe what the cause names, then `slipway run {recipe}`",
    causes.DIVERGED: "look at the loss and the data of the last steps, then continue an earlier checkpoint with "
    "other values: `slipway branch {id}@STEP FIELD=VALUE`",
    causes.OUT_OF_MEMORY: "set a smaller micro-batch or a larger layout in the recipe (`slipway plan {recipe}` "
    "helps to choose one), then `slipway run {recipe}`",
    causes.STORAGE: "check that the tier that the cause names is readable and writable, then `slipway resume {id}`",
    causes.MACHINE: "take the node out of service (`slipway nodes quarantine NODE --why ...`) and have it checked, "
    "then `slipway resume {id}`",
    causes.NODE: "make room on the node, or add what the cause names, or take it out of service (`slipway nodes "
    "quarantine NODE --why ...`), then `slipway resume {id}`",
    causes.PLATFORM: "add to the platform what the cause names: the permission, the operator, the queue",
}
FROM_THE_BEGINNING = (
    "look at the data of the first steps, then start it with other values: `slipway run {recipe} FIELD=VALUE`"
)
"""What to do about a training that diverged before its first checkpoint."""
OTHERWISE = "read the evidence, correct what it shows, then `slipway resume {id}`"
RANKS = 8
STACK_LINES = 24
"""The maximum number of ranks whose stacks are shown, and of lines of each stack."""
LOG_LINES = 12
NODES = 4
"""The number of log lines of each node that are shown, and the maximum number of these nodes."""
LONGEST_CAUSE = 2000
"""The maximum length of a cause on its own line, in characters: enough for many ranks, but not for a log."""
UNKNOWN = "unknown cause"
"""The text for people if the cause is unknown."""
_IN_C = re.compile(r"frame #\d+: |<omitting python frames>")
"""Lines of PyTorch's C++ stack traces. Twenty of them would hide the sentence before them."""


def to_do(kind: str, recipe: str, training: str, checkpoint: int) -> str:
    """What a person must do about a training that failed for good with this cause.

    checkpoint: the step of its newest checkpoint; 0 if there is none.
    """
    advice_text = FROM_THE_BEGINNING if kind == causes.DIVERGED and not checkpoint else TODO.get(kind, OTHERWISE)
    return advice_text.format(recipe=recipe, id=training)


@dataclass(frozen=True)
class IncidentReport:
    """One incident as people see it. Times are in seconds since the epoch."""

    id: str
    recipe: str
    training: str
    incarnation: int
    kind: str
    """The cause, from `slipway.trainer.record.causes`."""
    cause: str
    at: float
    noticed_by: str
    action: str
    state: str
    """One of `OVER`, `RECOVERING`, `WAITING` and `STOPPED`."""
    step: int
    """The last completed step."""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    survived: bool = False
    suspects: tuple[Suspect, ...] = ()
    steps_lost: int | None = None
    """The number of repeated steps; None while unknown. Of several incidents without a step in between, only the first
    has lost steps."""
    seconds_lost: float | None = None
    """The seconds that the training's account charges to it, until the next step or incident; None while unknown."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The lost seconds by bucket, in the order of `slipway.trainer.record.accounting.buckets`."""
    resumed: str = ""
    """The token with which the training went on, or ""."""
    resumed_on: tuple[str, ...] = ()
    resumed_from: int | None = None
    resumed_by: str = ""
    todo: str = ""
    """What a person must do, or ""."""
    kernel: tuple[str, ...] = ()
    """Lines about GPUs and memory from the kernel logs of the nodes."""
    evidence: tuple[str, ...] = ()
    """Files in the incident's folder."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Evidence that could not be collected, and why, by node."""

    @property
    def name(self) -> str:
        """The name of its partition, unique among all incidents."""
        return f"{self.training}.{self.id}"

    @property
    def settled(self) -> bool:
        """Whether the training has recovered from it, or waits for a person."""
        return self.state != RECOVERING

    @property
    def final(self) -> bool:
        """Whether the report can no longer change: the incident is over, and its cost is known."""
        return self.state == OVER and self.steps_lost is not None


def of(store: TrainingStore, facts: TrainingFacts) -> list[IncidentReport]:
    """The incidents of a training, the oldest first. Raises OSError and ValueError."""
    records = incidents.read_all(store, facts)
    if not records:
        return []
    claims = fence.claims(store.folder)
    costs = accounts.interruption_costs(store.folder)
    return [report(store, facts, claims, costs, record) for record in records]


def of_all(stores: Iterable[TrainingStore]) -> list[IncidentReport]:
    """The incidents of these trainings, the oldest first.

    A training whose records cannot be read is skipped; its summary says so.
    """
    reports: list[IncidentReport] = []
    for store in stores:
        with contextlib.suppress(ValueError, OSError):
            reports += of(store, store.read())
    return sorted(reports, key=lambda report_of_one: report_of_one.at)


def report(
    store: TrainingStore,
    facts: TrainingFacts,
    claims: list[Claim],
    costs: Mapping[str, InterruptionCost],
    record: IncidentRecord,
) -> IncidentReport:
    """The report of one incident; `costs` are the training's, by token (`accounts.interruption_costs`).
    Raises OSError.
    """
    token = Token.parse(record.token)
    later = sorted((claim for claim in claims if claim.token > token), key=lambda claim: claim.token)
    following = later[0] if later and not record.survived else None
    manifests = folder.manifests(store.folder, record.id)
    last_step = _last_step(store.folder, token)
    done = max(record.step, last_step)
    after = _first_events(store.folder, following.token) if following else {}
    stepped = "stepped" in after
    state = OVER if record.survived or stepped else _state(facts, following)
    if refusals.is_open(facts, record):
        state = WAITING
    known = not record.survived and (stepped or state == OVER) and record.token in costs
    charged = costs[record.token].lost if known else {}
    seconds = {name: round(charged[name], 3) for name in buckets.TITLES if charged.get(name)}
    suspected = tuple(suspects(manifests, heartbeat.read(store.folder, token))) if manifests else ()
    return IncidentReport(
        id=record.id,
        recipe=facts.specification.recipe,
        training=store.id,
        incarnation=token.incarnation,
        kind=record.kind,
        cause=record.reason,
        at=record.at,
        noticed_by=record.by,
        action=_action(facts, record, state, following),
        state=state,
        step=done,
        nodes=record.nodes,
        ranks=record.ranks,
        survived=record.survived,
        suspects=suspected,
        steps_lost=0 if record.survived else _steps_lost(store.folder, last_step, done, after, later),
        seconds_lost=round(sum(seconds.values()), 3) if known else None,
        seconds=seconds,
        resumed=str(following.token) if following else "",
        resumed_on=following.nodes if following else (),
        resumed_from=_resumed_from(after),
        resumed_by=following.by if following else "",
        todo=_todo(record.kind, facts) if state == WAITING else "",
        kernel=tuple(f"{manifest.node}: {line}" for manifest in manifests for line in manifest.kernel),
        evidence=tuple(f"{manifest.node}/{name}" for manifest in manifests for name in sorted(manifest.files)),
        missing={f"{manifest.node}: {what}": why for manifest in manifests for what, why in manifest.missing.items()},
    )


def is_stopped_by_person(facts: TrainingFacts) -> bool:
    """Whether a person stopped the training, and not the platform or a sweep."""
    wish = facts.desired
    if wish is None or facts.should_run:
        return False
    if wish.by_platform is None:  # written by an earlier version, which recorded the platform's decisions as a person's
        named = wish.by.endswith("by hand") or "was cancelled" in wish.why
        return named and budgets.IN_A_ROW not in wish.why
    return not wish.by_platform


def post_mortem(store: TrainingStore, report: IncidentReport) -> str:
    """The post-mortem of an incident: one page in Markdown, without images. Raises OSError."""
    parts = [_page_head(report), _cost_lines(report), _suspect_lines(report), _evidence_lines(store, report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: IncidentReport) -> str:
    """What happened and what it cost, in one line."""
    return f"{happened(report)}; {cost(report)}"


def happened(report: IncidentReport) -> str:
    """What happened, where and after which step, in one line."""
    named = [*report.nodes, *(f"rank {rank}" for rank in report.ranks)]
    where = ", ".join(name for name in named if name not in report.cause)
    cause = first_line(report.cause)
    at = f"after step {report.step:,}"
    line = cause if at in cause else f"{cause}, {at}"
    return f"{where}: {line}" if where else line


def first_line(cause: str, length: int = 160) -> str:
    """The first line of a cause, cut to `length` characters."""
    line = (cause.splitlines() or [""])[0]
    return line if len(line) <= length else f"{line[: length - 3]}..."


def cost(report: IncidentReport) -> str:
    """The lost steps and seconds in words, as far as they are known."""
    if report.survived:
        return "no step followed yet" if report.state == WAITING else "the training went on"
    if report.seconds_lost is None and report.steps_lost is not None:
        return f"{counted(report.steps_lost, 'step')} lost; the lost seconds are not recorded"
    if report.seconds_lost is None:
        return "its cost is not known yet" if report.state == RECOVERING else "no step followed"
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
    return f"{Token.parse(report.resumed).text}{ran_on(report)}, claimed by {report.resumed_by}"


def ran_on(report: IncidentReport) -> str:
    """The nodes on which the training went on, and from which step, with a leading space; "" if unknown."""
    text = ""
    if report.resumed_on:
        text += f" on {', '.join(report.resumed_on)}"
    if report.resumed_from is not None:
        text += f" from step {report.resumed_from:,}"
    return text


def named(report: IncidentReport) -> str:
    """The nodes and ranks on which it began, or "" if unknown."""
    return ", ".join([*report.nodes, *(f"rank {rank}" for rank in report.ranks)])


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _todo(kind: str, facts: TrainingFacts) -> str:
    """What a person must do about a training that waits. If it should still run, the platform retries it by itself."""
    action = to_do(kind, facts.specification.recipe, facts.id, facts.newest_step)
    if not facts.should_run:
        return action
    without_resume = action.partition(", then `slipway resume")[0]
    return f"{without_resume}; the platform retries the training by itself"


def _action(facts: TrainingFacts, record: IncidentRecord, state: str, following: Claim | None) -> str:
    """What was done about the incident. The record holds only what was planned when it was noticed."""
    wish = facts.desired
    if state == WAITING and wish is not None and wish.by_platform and not facts.should_run:
        return f"the training failed for good: {wish.why}"
    planned = following is not None or state not in NOT_DONE or record.action.startswith(("nothing", "is given up"))
    if state == WAITING and facts.should_run:
        return record.action if record.kind == causes.PLATFORM else HELD_BACK
    return record.action if planned else NOT_DONE[state]


def _steps_lost(
    store: Path, last_step: int, done: int, after: Mapping[str, JournalEvent], later: list[Claim]
) -> int | None:
    """The number of steps up to `done` that were repeated; None while no later generation has completed a step.

    last_step: the last step of the interrupted generation; 0 if it had none and so lost none. after: the first events
    of the next generation. later: the later claims, in order.
    """
    for claim in later[1:]:
        if "stepped" in after:
            break
        after = _first_events(store, claim.token)
    if "stepped" not in after:
        return None
    return max(0, done - (_resumed_from(after) or 0)) if last_step else 0


def _resumed_from(after: Mapping[str, JournalEvent]) -> int | None:
    """The step from which a generation with these first events went on; None while it has not."""
    if "restored" in after:
        return int(after["restored"].get("step", 0))
    return 0 if "stepped" in after else None


def _state(facts: TrainingFacts, following: Claim | None) -> str:
    """The state of an incident after which the training has not completed a step."""
    if facts.claim is not None and following is not None and following.token < facts.claim.token:
        return OVER  # the next generation was interrupted too, which is another incident
    if facts.succeeded:
        return OVER
    if facts.should_run and following is None and budgets.held_by(facts):
        return WAITING
    if facts.should_run:
        return RECOVERING if following is None or facts.ended is None else OVER
    return STOPPED if is_stopped_by_person(facts) else WAITING


def _last_step(store: Path, token: Token) -> int:
    """The last step that rank 0 recorded with this token; 0 if there is none."""
    path = store / files.LEDGER / f"{token}.rank-0.jsonl"
    with contextlib.suppress(FileNotFoundError):
        events = journal.read(path, max(0, path.stat().st_size - END_BYTES)).events
        return max((int(event["step"]) for event in events if event["event"] == "step"), default=0)
    return 0


def _first_events(store: Path, token: Token) -> dict[str, JournalEvent]:
    """The first restore and the first step with this token, as `restored` and `stepped`."""
    events: dict[str, JournalEvent] = {}
    for event in journal.read(store / files.LEDGER / f"{token}.rank-0.jsonl", 0, BEGINNING_BYTES).events:
        if event["event"] in ("restored", "step"):
            events.setdefault("stepped" if event["event"] == "step" else "restored", event)
    return events


def _page_head(report: IncidentReport) -> str:
    todo = report.todo or "nothing"
    if not report.todo and report.state != OVER:
        todo = "nothing: it recovers by itself"
    rows = {
        "when": f"{when(report.at)}, after step {report.step:,}",
        "cause": f"{report.kind or UNKNOWN}: {first_line(report.cause, LONGEST_CAUSE)}",
        "noticed by": report.noticed_by,
        "nodes": ", ".join(report.nodes) or "unknown",
        "ranks": ", ".join(map(str, report.ranks)) or "unknown",
        "action": report.action,
        "went on": went_on(report),
        "state": report.state,
        "cost": cost(report),
        "what to do": todo,
    }
    lines = [f"# Incident {report.name}", "", headline(report), "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {_cell(value)} |" for name, value in rows.items())])


def _cost_lines(report: IncidentReport) -> str:
    if not report.seconds:
        return ""
    rows = [f"| {buckets.TITLES[bucket]} | {seconds:,.2f} |" for bucket, seconds in report.seconds.items()]
    return "\n".join(["## Seconds", "", "| spent on | seconds |", "|---|---:|", *rows])


def _suspect_lines(report: IncidentReport) -> str:
    if not report.suspects:
        return ""
    lines = ["## Suspects", ""]
    for suspect in report.suspects:
        where = f"rank {suspect.rank} on {suspect.node}" if suspect.node else f"rank {suspect.rank}"
        lines.append(f"- {where}: {suspect.why}")
    return "\n".join(lines)


def _evidence_lines(store: TrainingStore, report: IncidentReport) -> str:
    manifests = folder.manifests(store.folder, report.id)
    ends = {} if manifests else kept_tails(store, report.incarnation)
    parts = [f"## Evidence\n\nIn `{incident_records.evidence(store.folder, report.id)}`."] if manifests else []
    ranks = [(manifest.node, rank) for manifest in manifests for rank in manifest.ranks]
    if ranks:
        rows = [
            f"| {rank.rank} | {node} | {rank.state} | {_cell(rank.exchange or '-')} | {_cell(rank.where or '-')} |"
            for node, rank in ranks
        ]
        parts.append(
            "\n".join(["| rank | node | state | exchange | innermost call |", "|---:|---|---|---|---|", *rows])
        )
    parts += _stacks(store, report, manifests)
    all_nodes = [manifest.node for manifest in manifests]
    chosen = [node for node in all_nodes if not report.nodes or node in report.nodes] or all_nodes
    parts += [_block(f"End of the log of {node}", _log(store, report, node), LOG_LINES) for node in chosen[:NODES]]
    parts += [_block(f"End of the log of {node}", log, LOG_LINES) for node, log in list(ends.items())[:NODES]]
    if report.kernel:
        parts.append("\n".join(["From the kernel logs:", "", *(f"- {line}" for line in report.kernel)]))
    if report.missing:
        rows = [f"- {what}: {why}" for what, why in report.missing.items()]
        parts.append("\n".join(["Missing evidence:", "", *rows]))
    return "\n\n".join(part for part in parts if part)


def _stacks(store: TrainingStore, report: IncidentReport, manifests: list[DiagnosisManifest]) -> Iterator[str]:
    """The stacks of the training threads; suspects and named ranks come first."""
    first = {*report.ranks, *(suspect.rank for suspect in report.suspects)}
    sections = []
    for manifest in manifests:
        written = folder.text(store.folder, report.id, manifest.node, "stacks.txt")
        for section in re.split(r"(?m)^=== ", written)[1:]:
            title, _, body = section.partition("\n")
            rank = int(re.findall(r"\d+", title)[0])
            sections.append((rank not in first, rank, f"Rank {title.rstrip('= ').removeprefix('rank ')}", body))
    for _, _, title, body in sorted(sections)[:RANKS]:
        yield _block(title, _training_thread(body), STACK_LINES, from_end=False)


def _training_thread(body: str) -> str:
    """The main thread's part of a stack dump: the last thread whose outermost call is not the start of a thread."""
    threads = re.split(r"(?m)^(?=(?:Current thread|Thread) 0x)", body)
    main = [thread for thread in threads if thread.strip() and "in _bootstrap\n" not in thread and "File " in thread]
    fatal = [thread for thread in threads if thread.startswith("Fatal Python error")]
    return "\n".join([*(thread.strip() for thread in fatal), (main[-1] if main else body).strip()])


def _log(store: TrainingStore, report: IncidentReport, node: str) -> str:
    return folder.text(store.folder, report.id, node, "log.txt")


def _block(title: str, content: str, lines: int, from_end: bool = True) -> str:
    shown_lines = [line for line in content.rstrip().splitlines() if not _IN_C.match(line)]
    shown_lines = shown_lines[-lines:] if from_end else shown_lines[:lines]
    if not shown_lines:
        return ""
    return "\n".join([f"{title}:", "", "```", *(line.replace("```", "'''")[:300] for line in shown_lines), "```"])


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
