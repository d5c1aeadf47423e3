"""Incidents of a training: write the record of an incident if no process on its nodes has written it.

Every failed incarnation has an incident. The first process to notice the failure writes the record: the node's
supervisor or the trainer; the control plane that replaces an incarnation or records its end; or, if all of them died,
the sensor that shows incidents.

Suspects are the nodes on which an incarnation's faults probably began, if the reaction to such faults is other nodes.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.faults import APART, HANGS, TrainingFault
from slipway.resources.trainings.logs import keep_tails
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.diagnosis import folder, requests
from slipway.trainer.diagnosis.suspects import Suspect, suspects
from slipway.trainer.record import causes, fence, files, heartbeat, incidents, rank_exit
from slipway.trainer.record.fence import Exit, Token
from slipway.trainer.record.incidents import IncidentRecord

DIAGNOSIS_SECONDS = 5.0
"""How long a hanging incarnation is kept, so that its nodes can collect the stacks of the ranks."""
RESTARTS = "a new incarnation goes on from the newest checkpoint"
_RANK = re.compile(r"\brank (\d+)\b")
_first_asked_at: dict[tuple[Path, str], float] = {}
"""When this process first asked the nodes of an incident, by its own monotonic clock."""


def is_diagnosed(store: TrainingStore, facts: TrainingFacts, fault: TrainingFault, by: str) -> bool:
    """Whether an incarnation may be ended: its nodes have sent their diagnosis, or have had the time for it.

    This function requests the diagnosis of a hang and returns at once; call it again. It requests none for other
    faults, since that would cost time and the ranks may be gone, and none if the training's store is not writable.
    """
    if fault.kind != causes.HUNG or facts.claim is None:
        return True
    id = str(facts.claim.token)
    now = time.monotonic()
    try:
        requests.ask(store.folder, id, fault.cause, by)
        have_answered = set(fault.nodes) <= set(folder.nodes(store.folder, id))
    except OSError:
        return True
    since = _first_asked_at.setdefault((store.folder, id), now)
    if not have_answered and now - since < DIAGNOSIS_SECONDS:
        return False
    del _first_asked_at[store.folder, id]
    return True


def note_failure(store: TrainingStore, ended: Exit) -> bool:
    """Write the incident of a failed incarnation, unless there is one. Raises OSError."""
    token = _last_tokens(store.folder).get(ended.incarnation, Token(ended.incarnation))
    if str(token) in incidents.names(store.folder, ended.incarnation):
        return False
    return store.note_incident(_of_exit(store.folder, token, ended))


def note_given_up(store: TrainingStore, ended: Exit, launcher: Launcher) -> None:
    """Record what is left of a replaced incarnation: its logs, its incident, its end. Raises OSError."""
    keep_tails(store, ended.incarnation, launcher)
    note_failure(store, ended)
    store.note_end(ended)


def note_if_failed(store: TrainingStore, incarnation: int) -> None:
    """Write the incident of an incarnation whose recorded end is a failure. Raises OSError."""
    ended = fence.read_exit(store.folder, incarnation)
    if ended is not None and ended.outcome == "failed":
        note_failure(store, ended)


def failures_without_record(store: TrainingStore, failures: Iterable[Exit]) -> list[Exit]:
    """The failed incarnations whose last generation has no incident record. Raises OSError."""
    return [failure for _, failure in _failures_without_record(store, failures)]


def suspected(store: Path, id: str) -> list[Suspect]:
    """The suspected ranks, according to the evidence of the nodes. Raises OSError."""
    token = Token.parse(".".join(id.split(".")[:2]))
    manifests = folder.manifests(store, id)
    return suspects(manifests, heartbeat.read(store, token)) if manifests else []


def began_with(
    store: Path, token: Token, ended: Exit, suspected: list[Suspect]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ranks and nodes on which the fault began: the suspects, else those with an exit record, else those named in
    the reason. For a hang in which all ranks are alike, no rank is known; a single node is still known.
    """
    end = rank_exit.decisive(store, token.incarnation)
    reason = ended.reason.partition(APART)[2] if ended.reason.startswith(HANGS) else ended.reason
    ranks = [int(rank) for rank in _RANK.findall(reason)]
    nodes = [node for node in ended.nodes if re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", reason)]
    if ended.reason.startswith(HANGS) and len(ended.nodes) == 1:
        nodes = list(ended.nodes)
    if end:
        ranks = [end.rank]
        nodes = [end.node]
    ranks = [suspect.rank for suspect in suspected] or ranks
    nodes = [suspect.node for suspect in suspected if suspect.node] or nodes
    return tuple(dict.fromkeys(ranks)), tuple(dict.fromkeys(nodes))


def read_all(store: TrainingStore, facts: TrainingFacts) -> list[IncidentRecord]:
    """The incidents of a training in order, including failures without a record; damaged records are left out.

    Raises OSError.
    """
    by_id = {}
    for name in incidents.names(store.folder):
        path = files.named(store.folder, files.INCIDENTS, name)
        record = codec.read_if_whole(path, IncidentRecord, incidents.FORMAT)
        if record is not None:
            by_id[name] = record
    for token, ended in _failures_without_record(store, facts.failures):
        record = _of_exit(store.folder, token, ended)
        by_id.setdefault(record.id, record)
    return [by_id[name] for name in sorted(by_id)]


def suspects_of_fault(fault: TrainingFault, policies: Mapping[str, str]) -> frozenset[str]:
    """The suspects of a fault, if the reaction to it is other nodes."""
    return frozenset(fault.suspects if causes.answer(fault.kind, policies) == causes.REPLACE else ())


def suspects_on_record(
    folder: Path, incarnation: int, ran_on: Collection[str], policies: Mapping[str, str]
) -> frozenset[str]:
    """The suspects in the incident records of an incarnation that ran on these nodes. Raises OSError.

    Damaged records are skipped, and so is a record that names all of several nodes.
    """
    names: set[str] = set()
    for id in incidents.names(folder, incarnation):
        try:
            incident = incidents.read(folder, id)
        except codec.UndecodableRecord:
            continue
        names_all = len(ran_on) > 1 and set(ran_on) <= set(incident.nodes)
        if causes.answer(incident.kind, policies) == causes.REPLACE and not names_all:
            names.update(incident.nodes)
    return frozenset(names)


def avoiding_suspects(ready: Sequence[str], suspects: Collection[str], node_count: int) -> list[str]:
    """The ready nodes without the suspects, or all of them if the training would otherwise have fewer nodes."""
    others = [node for node in ready if node not in suspects]
    return others if len(others) >= min(node_count, len(ready)) else list(ready)


def _failures_without_record(store: TrainingStore, failures: Iterable[Exit]) -> list[tuple[Token, Exit]]:
    """As `failures_without_record`, each with the token of its last generation."""
    failures = list(failures)
    tokens = _last_tokens(store.folder) if failures else {}
    names = set(incidents.names(store.folder))
    last_failures = [(tokens.get(failure.incarnation, Token(failure.incarnation)), failure) for failure in failures]
    return [(token, failure) for token, failure in last_failures if str(token) not in names]


def _of_exit(store: Path, token: Token, ended: Exit) -> IncidentRecord:
    beats = heartbeat.read(store, token)
    ranks, nodes = began_with(store, token, ended, suspected(store, str(token)))
    return IncidentRecord(
        token=str(token),
        kind=ended.kind,
        reason=ended.reason,
        action="nothing: it would fail again" if ended.kind == causes.CONFIGURATION else RESTARTS,
        by=ended.by,
        at=ended.at,
        step=max([ended.step, *(beat.step for beat in beats)]),
        ranks=ranks,
        nodes=nodes,
    )


def _last_tokens(store: Path) -> dict[int, Token]:
    """The last generation of each incarnation."""
    return {claim.token.incarnation: claim.token for claim in fence.claims(store)}  # claims are in order
