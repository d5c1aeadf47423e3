"""Reports of incidents: what each cost, what was done, where the training went on, and whether a person is needed.

Everything is computed from records: the incident's own, the claims, how incarnations ended, and of the ledger the end
of the generation that was interrupted and the beginning of the one that followed. The seconds are those of the
training's account, so that an incident, `slipway show` and SQL name the same ones. Reads, and changes nothing.
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

OVER, RECOVERING, WAITING, STOPPED = "over", "recovering", "waits for a person", "stopped by a person"
NOT_DONE = {
    WAITING: "nothing more: the training was given up, and is not started again",
    STOPPED: "nothing more: a person stopped the training",
}
"""What was done where no start followed, whatever was meant to be."""
HELD_BACK = "a new incarnation goes on from the newest checkpoint, after longer and longer rests"
"""What is done about a training that has failed too often in a row for what is not its own fault."""
END_BYTES, BEGINNING_BYTES = 64 << 10, 256 << 10
"""So much is read of a generation's segments of the ledger: the steps before an incident, and what follows it."""
TODO = {
    causes.CONFIGURATION: "put right in the recipe what the cause names, then `slipway run {recipe}`",
    causes.DIVERGED: "look at the loss and at the data of the last steps, then continue a checkpoint of before with "
    "other values: `slipway branch {id}@STEP FIELD=VALUE`",
    causes.OUT_OF_MEMORY: "take a smaller micro-batch or a larger layout in the recipe, which `slipway plan {recipe}` "
    "helps to choose, then `slipway run {recipe}`",
    causes.STORAGE: "see that the tier that the cause names can be read and written, then `slipway resume {id}`",
    causes.MACHINE: "have the node looked at, and taken out of service (`slipway nodes quarantine NODE --why ...`), "
    "then `slipway resume {id}`",
    causes.NODE: "make room on the node, or give it what the cause names, or take it out of service (`slipway nodes "
    "quarantine NODE --why ...`), then `slipway resume {id}`",
    causes.PLATFORM: "give the platform what the cause names: the permission, the operator, the queue",
}
FROM_THE_BEGINNING = (
    "look at the data of the first steps, then start it with other values: `slipway run {recipe} FIELD=VALUE`"
)
"""What to do about one that diverged before its first checkpoint: there is none to continue."""
OTHERWISE = "read the evidence, put right what it shows, then `slipway resume {id}`"
RANKS, STACK_LINES, LOG_LINES, NODES = 8, 24, 12, 4
"""Of so many ranks, so many lines of the stack are shown, and so many lines of the log of so many nodes."""
LONGEST_CAUSE = 2000
"""So many characters of a cause are shown where it stands alone: a sentence about many ranks, and not a log."""
UNKNOWN = "unknown cause"
"""What a person reads in place of the class of a cause where the platform knows none."""
_IN_C = re.compile(r"frame #\d+: |<omitting python frames>")
"""Lines with which PyTorch's C++ explains an exception: twenty of them would hide the sentence before them."""


def to_do(kind: str, recipe: str, training: str, checkpoint: int) -> str:
    """What a person is to do about a training that a cause of this class has ended for good.

    checkpoint: the step of its newest one; 0 without one.
    """
    advice_text = FROM_THE_BEGINNING if kind == causes.DIVERGED and not checkpoint else TODO.get(kind, OTHERWISE)
    return advice_text.format(recipe=recipe, id=training)


@dataclass(frozen=True)
class IncidentReport:
    """One incident as people see it. Times are seconds since the epoch."""

    id: str
    recipe: str
    training: str
    incarnation: int
    kind: str
    """The class of the cause, of `slipway.trainer.record.causes`."""
    cause: str
    at: float
    noticed_by: str
    action: str
    state: str
    """One of `OVER`, `RECOVERING`, `WAITING` and `STOPPED`."""
    step: int
    """The last step that was done."""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    survived: bool = False
    suspects: tuple[Suspect, ...] = ()
    steps_lost: int | None = None
    """Steps that are done again; None while that is not known. Of several incidents without a step between them, the
    first one took them back."""
    seconds_lost: float | None = None
    """What the training's account charges to it, until the steps go on or the next incident; None while that is not
    known."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The parts of it by bucket of `slipway.trainer.record.accounting.buckets`, in their order there."""
    resumed: str = ""
    """The token under which the training went on; empty while it has not."""
    resumed_on: tuple[str, ...] = ()
    resumed_from: int | None = None
    resumed_by: str = ""
    todo: str = ""
    """What a person is to do; empty where nobody is needed."""
    kernel: tuple[str, ...] = ()
    """What the kernels of the nodes had logged of GPUs and of memory."""
    evidence: tuple[str, ...] = ()
    """Files in the incident's folder."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """What of the evidence could not be had, and why, by node."""

    @property
    def name(self) -> str:
        """Of all incidents, this one: the name of its partition."""
        return f"{self.training}.{self.id}"

    @property
    def settled(self) -> bool:
        """Whether the training has got over it, or waits for a person."""
        return self.state != RECOVERING

    @property
    def final(self) -> bool:
        """Whether nothing about it can change any more: it is over, and its cost is known."""
        return self.state == OVER and self.steps_lost is not None


def of(store: TrainingStore, facts: TrainingFacts) -> list[IncidentReport]:
    """The incidents of a training, the first one first. Raises OSError and ValueError."""
    records = incidents.read_all(store, facts)
    if not records:
        return []
    claims = fence.claims(store.folder)
    costs = accounts.interruption_costs(store.folder)
    return [report(store, facts, claims, costs, record) for record in records]


def of_all(stores: Iterable[TrainingStore]) -> list[IncidentReport]:
    """The incidents of trainings, the latest last.

    A training whose records cannot be read has none here; its summary says so.
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
    """One incident; `costs` are the training's, by token (`accounts.interruption_costs`). Raises OSError."""
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
        lacking={f"{manifest.node}: {what}": why for manifest in manifests for what, why in manifest.lacking.items()},
    )


def is_stopped_by_person(facts: TrainingFacts) -> bool:
    """Whether a person asked that the training run no more; not where the platform gave it up or a sweep ended it."""
    wish = facts.desired
    if wish is None or facts.should_run:
        return False
    if wish.by_platform is None:  # an earlier version: a command that gave a training up did so in a person's name
        named = wish.by.endswith("by hand") or "was cancelled" in wish.why
        return named and budgets.IN_A_ROW not in wish.why
    return not wish.by_platform


def post_mortem(store: TrainingStore, report: IncidentReport) -> str:
    """The post-mortem of an incident: one page in Markdown, without a picture. Raises OSError."""
    parts = [_page_head(report), _cost_lines(report), _suspect_lines(report), _evidence_lines(store, report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: IncidentReport) -> str:
    """What happened and what it cost, in one line."""
    return f"{happened(report)}; {cost(report)}"


def happened(report: IncidentReport) -> str:
    """What happened, where and after which step, in one line."""
    named = [*report.nodes, *(f"rank {rank}" for rank in report.ranks)]
    where = ", ".join(name for name in named if name not in report.cause)
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


def _todo(kind: str, facts: TrainingFacts) -> str:
    """What a person is to do about one that waits: given up, or wanted still, so that it goes on by itself."""
    action = to_do(kind, facts.specification.recipe, facts.id, facts.newest_step)
    resumed = ", then `slipway resume"
    return f"{action.partition(resumed)[0]}; it is tried again by itself" if facts.should_run else action


def _action(facts: TrainingFacts, record: IncidentRecord, state: str, following: Claim | None) -> str:
    """What was done about it: the record has what was meant to be, when the incident was noticed."""
    wish = facts.desired
    if state == WAITING and wish is not None and wish.by_platform and not facts.should_run:
        return f"the training was given up: {wish.why}"
    planned = following is not None or state not in NOT_DONE or record.action.startswith(("nothing", "is given up"))
    if state == WAITING and facts.should_run:
        return record.action if record.kind == causes.PLATFORM else HELD_BACK
    return record.action if planned else NOT_DONE[state]


def _steps_lost(
    store: Path, last_step: int, done: int, after: Mapping[str, JournalEvent], later: list[Claim]
) -> int | None:
    """How many of the steps until `done` were done again; None while no later generation has done a step.

    last_step: of the interrupted generation itself, 0 where it has done none: it had nothing to lose. after: how the
    generation after it began. later: the claims after it, in order.
    """
    for claim in later[1:]:
        if "stepped" in after:
            break
        after = _first_events(store, claim.token)
    if "stepped" not in after:
        return None
    return max(0, done - (_resumed_from(after) or 0)) if last_step else 0


def _resumed_from(after: Mapping[str, JournalEvent]) -> int | None:
    """The step from which a generation went on that began so; None while it has not."""
    return int(after["restored"].get("step", 0)) if "restored" in after else (0 if "stepped" in after else None)


def _state(facts: TrainingFacts, following: Claim | None) -> str:
    """Where a training stands that has not stepped since an incident."""
    if facts.claim is not None and following is not None and following.token < facts.claim.token:
        return OVER  # what followed was interrupted itself: that is another incident
    if facts.succeeded:
        return OVER
    if facts.should_run and following is None and budgets.held_by(facts):
        return WAITING
    if facts.should_run:
        return RECOVERING if following is None or facts.ended is None else OVER
    return STOPPED if is_stopped_by_person(facts) else WAITING


def _last_step(store: Path, token: Token) -> int:
    """The last step that rank 0 wrote under a token, 0 for none."""
    path = store / files.LEDGER / f"{token}.rank-0.jsonl"
    with contextlib.suppress(FileNotFoundError):
        events = journal.read(path, max(0, path.stat().st_size - END_BYTES)).events
        return max((int(event["step"]) for event in events if event["event"] == "step"), default=0)
    return 0


def _first_events(store: Path, token: Token) -> dict[str, JournalEvent]:
    """The first restore and the first step under a token, as `restored` and `stepped`."""
    events: dict[str, JournalEvent] = {}
    for event in journal.read(store / files.LEDGER / f"{token}.rank-0.jsonl", 0, BEGINNING_BYTES).events:
        if event["event"] in ("restored", "step"):
            events.setdefault("stepped" if event["event"] == "step" else "restored", event)
    return events


def _page_head(report: IncidentReport) -> str:
    todo = report.todo or ("nothing" if report.state == OVER else "nothing: it recovers by itself")
    rows = {
        "when": f"{when(report.at)}, after step {report.step:,}",
        "cause": f"{report.kind or UNKNOWN}: {first_line(report.cause, LONGEST_CAUSE)}",
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


def _cost_lines(report: IncidentReport) -> str:
    if not report.seconds:
        return ""
    rows = [f"| {buckets.TITLES[bucket]} | {seconds:,.2f} |" for bucket, seconds in report.seconds.items()]
    return "\n".join(["## Seconds", "", "| spent on | seconds |", "|---|---:|", *rows])


def _suspect_lines(report: IncidentReport) -> str:
    rows = [
        f"- rank {suspect.rank}{f' on {suspect.node}' if suspect.node else ''}: {suspect.why}"
        for suspect in report.suspects
    ]
    return "\n".join(["## Suspects", "", *rows]) if rows else ""


def _evidence_lines(store: TrainingStore, report: IncidentReport) -> str:
    manifests = folder.manifests(store.folder, report.id)
    ends = {} if manifests else kept_tails(store, report.incarnation)
    parts = [f"## Evidence\n\nIn `{incident_records.evidence(store.folder, report.id)}`."] if manifests else []
    if ranks := [(manifest.node, rank) for manifest in manifests for rank in manifest.ranks]:
        rows = [
            f"| {rank.rank} | {node} | {rank.state} | {_cell(rank.exchange or '-')} | {_cell(rank.where or '-')} |"
            for node, rank in ranks
        ]
        parts.append(
            "\n".join(["| rank | node | state | exchange | innermost call |", "|---:|---|---|---|---|", *rows])
        )
    parts += _stacks(store, report, manifests)
    chosen = [manifest.node for manifest in manifests if not report.nodes or manifest.node in report.nodes] or [
        e.node for e in manifests
    ]
    parts += [_block(f"End of the log of {node}", _log(store, report, node), LOG_LINES) for node in chosen[:NODES]]
    parts += [_block(f"End of the log of {node}", log, LOG_LINES) for node, log in list(ends.items())[:NODES]]
    if report.kernel:
        parts.append("\n".join(["What the kernels logged:", "", *(f"- {line}" for line in report.kernel)]))
    if report.lacking:
        rows = [f"- {what}: {why}" for what, why in report.lacking.items()]
        parts.append("\n".join(["What could not be had:", "", *rows]))
    return "\n\n".join(part for part in parts if part)


def _stacks(store: TrainingStore, report: IncidentReport, manifests: list[DiagnosisManifest]) -> Iterator[str]:
    """The stack of the thread that trains, of the suspects and the ranks named first."""
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
    """The part of a dump that is of the main thread: the last one whose outermost call is not a thread's start."""
    threads = re.split(r"(?m)^(?=(?:Current thread|Thread) 0x)", body)
    main = [thread for thread in threads if thread.strip() and "in _bootstrap\n" not in thread and "File " in thread]
    fatal = [thread for thread in threads if thread.startswith("Fatal Python error")]
    return "\n".join([*(thread.strip() for thread in fatal), (main[-1] if main else body).strip()])


def _log(store: TrainingStore, report: IncidentReport, node: str) -> str:
    return folder.text(store.folder, report.id, node, "log.txt")


def _block(title: str, content: str, lines: int, from_end: bool = True) -> str:
    shown_lines = [line for line in content.rstrip().splitlines() if not _IN_C.match(line)]
    shown_lines = shown_lines[-lines:] if from_end else shown_lines[:lines]
    return (
        "\n".join([f"{title}:", "", "```", *(line.replace("```", "'''")[:300] for line in shown_lines), "```"])
        if shown_lines
        else ""
    )


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
