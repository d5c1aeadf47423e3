"""Foreground control: start, follow, stop and resume a training from the command line.

The sensors of a running instance would take the same steps. Here the command takes them at once, so that no instance
needs to run. Meanwhile it prints the events of the ledger as sentences (`SENTENCES`). It skips events that only serve
metrics, and events that a later event repeats better.
"""

import time
from collections.abc import Callable, Iterator

from slipway.resources.errors import Unavailable
from slipway.resources.trainings import branching
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.metric_series import read_sample
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import quantities
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.base.quantities import counted, duration
from slipway.trainer.record import causes, ledger, phases

MARGIN_SECONDS = 15.0
"""How much longer than its grace period a stopping job may take to end."""
POLL_SECONDS = 0.2
EVENT_POLL_SECONDS = 0.5
EVERY_STEPS = 10
"""One of this many steps is shown."""
PHASES = {
    phases.STARTING: "the ranks start",
    phases.STAGING: "the nodes copy the shards that the steps read",
    phases.BUILDING: "the ranks build the model",
    phases.RESTORING: "the ranks restore a checkpoint",
    phases.COMPILING: "the ranks compile the model",
}
"""The phases that are shown: those before the first step, which may take long."""


def resume(trainings: Trainings, store: TrainingStore, by: str, why: str) -> None:
    """Start a stopped or failed training again.

    Raises ValueError if it has succeeded, or if the checkpoint from which a branch starts was removed meanwhile.
    """
    ended = store.exit()
    if ended is not None and ended.outcome == "succeeded":
        raise ValueError(f"training {store.id}: it has succeeded at step {ended.step}: there is nothing to resume")
    branching.hold_again(trainings, store)
    trainings.start(store, by, why)


def begin(control: TrainingControl, store: TrainingStore, by: str) -> str:
    """Take all steps that are due now; returns what the training waits for, or "" once a job is submitted.

    Raises Unavailable if the launcher or the fleet does not answer.
    """
    while control.advance(store, by) in (Action.CLAIM, Action.RECORD, Action.GIVE_UP, Action.SUBMIT):
        pass
    facts = store.read()
    waiting = None if control.status(facts).state.live else control.waiting(facts)
    return waiting.reason if waiting else ""


def grace_warning(store: TrainingStore) -> str:
    """Why a stop would lose steps: saving takes longer than the grace period. "" if no such event is recorded."""
    events = read_sample(store.folder).events
    return next((str(event["reason"]) for event in reversed(events) if event["event"] == "grace_too_short"), "")


def stop(control: TrainingControl, store: TrainingStore, by: str, why: str) -> int:
    """Stop a training, wait until it has stopped, and return the step of its newest checkpoint.

    Raises Unavailable if its job has not ended long after its grace period.
    """
    store.want("stop", by, why)
    deadline = time.monotonic() + control.grace_of(store.read()) + MARGIN_SECONDS
    while control.advance(store, by) is not Action.DONE:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{store.id}: its job has not ended {MARGIN_SECONDS:.0f} s after its grace period; try again"
            )
        time.sleep(POLL_SECONDS)
    commits = store.commits()
    return commits[-1].step if commits else 0


def until_ended(store: TrainingStore, control: TrainingControl | None, by: str) -> Iterator[str]:
    """Yield the training's events as lines, from its beginning until it is over.

    With `control`, also take the steps that are due, in the name of `by`; without it, only read.
    """
    tail = ledger.Tail(store.folder)
    while True:
        over = control.advance(store, by) is Action.DONE if control else store.read().over
        yield from filter(None, map(event_line, tail.new()))
        if over:
            return
        time.sleep(EVENT_POLL_SECONDS)


def event_line(event: JournalEvent) -> str:
    """An event of the ledger as a line for a person; "" for an event that is not shown."""
    sentence = SENTENCES.get(event["event"])
    line = sentence(event) if sentence else ""
    return f"{time.strftime('%H:%M:%S', time.localtime(event['t']))} {line}" if line else ""


def _step(event: JournalEvent) -> str:
    if event["step"] % EVERY_STEPS:
        return ""
    return f"step {event['step']}: loss {event['loss']:.4f}, {event['seconds']:.3f} s"


def _desired_changed(event: JournalEvent) -> str:
    return f"{event['by']} wants the training to {event['want']}" + _because(event.get("why", ""))


def _claimed(event: JournalEvent) -> str:
    return f"the next start uses {_names(event['nodes'])}{_because(event['cause'])}"


def _phase(event: JournalEvent) -> str:
    return next((sentence for phase, sentence in PHASES.items() if phase.name == event["phase"]), "")


def _started(event: JournalEvent) -> str:
    device = f" on {event['device']}" if "device" in event else ""
    return f"{counted(event['world'], 'rank')} started{device}"


def _restored(event: JournalEvent) -> str:
    return f"it goes on from step {event['step']}, restored in {duration(event['seconds'])}"


def _committed(event: JournalEvent) -> str:
    tier = f" on the {event['tier']} tier" if event.get("tier") else ""
    return f"checkpoint of step {event['step']} saved{tier}, {quantities.bytes_in_words(event['bytes'])}"


def _detected(event: JournalEvent) -> str:
    """A restart of the ranks; "" without a reason, since then an incident or the end follows with more detail."""
    return f"the ranks start again: {event['reason']}" if event.get("reason") else ""


def _incident(event: JournalEvent) -> str:
    where = f" on {_names(event['nodes'])}" if event.get("nodes") else ""
    kind = causes.cause(event["kind"]).name.replace("_", " ") or "unknown cause"
    action = f"; {event['action']}" if event.get("action") else ""
    return f"incident ({kind}){where}: {_first_line(event['cause'])}{action}"


def _ended(event: JournalEvent) -> str:
    """The end of an incarnation. A failed one is shown without a step, since the step in the event may be either the
    last step of its ranks or that of its newest checkpoint."""
    because = _because(event.get("reason", ""))
    if event["outcome"] == "succeeded":
        return f"the start succeeded at step {event['step']}{because}"
    if event["outcome"] == "failed":
        return f"the start failed{because}"
    progress = f"with a checkpoint of step {event['step']}" if event["step"] else "without a checkpoint"
    return f"the start {event['outcome']} {progress}{because}"


def _changed(event: JournalEvent) -> str:
    pairs = ", ".join(f"{name} from {was} to {now}" for name, (was, now) in event["changed"].items())
    return f"{pairs} after step {event['step']}, asked by {event['asked_by']}{_because(event.get('why', ''))}"


def _because(reason: str) -> str:
    return f": {_first_line(reason)}" if reason else ""


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _names(nodes: list[str]) -> str:
    return ", ".join(nodes)


SENTENCES: dict[str, Callable[[JournalEvent], str]] = {
    "wanted": _desired_changed,
    "claimed": _claimed,
    "submitted": lambda event: "its job was submitted",
    "phase": _phase,
    "started": _started,
    "restored": _restored,
    "step": _step,
    "step_left": lambda event: f"step {event['step']} was not completed: {event['reason']}",
    "grace_too_short": lambda event: f"a stop now would lose steps: {event['reason']}",
    "validated": lambda event: f"validation loss after step {event['step']}: {event['loss']:.4f}",
    "committed": _committed,
    "commit_failed": lambda event: f"the checkpoint of step {event['step']} was not saved: {event['reason']}",
    "replication_failed": lambda event: (
        f"the checkpoint of step {event['step']} was not copied to the {event['tier']} tier: {event['reason']}"
    ),
    "set_aside": lambda event: f"checkpoint {event['commit']} is damaged and was set aside: {event['reason']}",
    "released": lambda event: f"checkpoint {event['commit']} is valid again: {event['reason']}",
    "passed_over": lambda event: f"checkpoint {event['commit']} was skipped: {event['reason']}",
    "source_failed": lambda event: f"{event['node']} could not send a file of a checkpoint: {event['reason']}",
    "memory_damaged": lambda event: f"step {event['step']} in the nodes' memory was skipped: {event['reason']}",
    "tier_away": lambda event: f"it waits for a tier: {event['reason']}",
    "skipped": lambda event: f"the batch of step {event['step']} was skipped: {event['reason']}",
    "detected": _detected,
    "incident": _incident,
    "grown": lambda event: f"it restarts with {_names(event['nodes'])} added: {event['cause']}",
    "away": lambda event: f"no control plane watched the training for {duration(event['seconds'])}",
    "changed": _changed,
    "change_refused": lambda event: f"a change by {event['asked_by']} was rejected: {event['reason']}",
    "not_recorded": lambda event: (
        f"{counted(event['events'], 'event')} could not be recorded while the store was not writable"
    ),
    "profile_failed": lambda event: (
        f"the profile of steps {event['first']} to {event['last']} was not written: " + str(event["reason"])
    ),
    "drill": lambda event: f"drill on rank {event['rank']}, asked by {event['by']}: {event['what'] or event['kind']}",
    "ended": _ended,
}
