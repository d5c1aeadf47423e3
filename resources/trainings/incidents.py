"""Incidents of a training: the one record of each, which is written where the node's side has not written one.

An incarnation that failed has an incident. Whoever learns of it first writes the record: the node's supervisor or the
trainer, the control plane that gives an incarnation up or records its end, or, where all of them died before that, the
sensor that shows incidents.

Suspects are the nodes on which an incarnation's faults seem to have begun, where the answer to these is other nodes.
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
"""How long an incarnation that hangs is left alone at least for its nodes to say where the ranks are."""
RESTARTS = "a new incarnation goes on from the newest checkpoint"
_RANK = re.compile(r"\brank (\d+)\b")
_first_asked_at: dict[tuple[Path, str], float] = {}
"""Since when this process waits for the nodes of an incident, by its own monotonic clock."""


def is_diagnosed(store: TrainingStore, facts: TrainingFacts, fault: TrainingFault, by: str) -> bool:
    """Whether an incarnation may be ended: its nodes have said what its ranks do, or were given the time to.

    The nodes of one that hangs are asked here, and nobody waits: ask again. For another fault no node is asked, as it
    would cost time, and the ranks may be gone; nor where the training's store cannot be written.
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
    """Write the record of an incarnation that failed, unless there is one. Raises OSError."""
    token = _last_tokens(store.folder).get(ended.incarnation, Token(ended.incarnation))
    if str(token) in incidents.names(store.folder, ended.incarnation):
        return False
    return store.note_incident(_of_exit(store.folder, token, ended))


def note_given_up(store: TrainingStore, ended: Exit, launcher: Launcher) -> None:
    """Keep what is left of an incarnation that was given up: its logs, its incident, its end. Raises OSError."""
    keep_tails(store, ended.incarnation, launcher)
    note_failure(store, ended)
    store.note_end(ended)


def note_if_failed(store: TrainingStore, incarnation: int) -> None:
    """Write the incident of an incarnation whose end is on record, if it failed. Raises OSError."""
    ended = fence.read_exit(store.folder, incarnation)
    if ended is not None and ended.outcome == "failed":
        note_failure(store, ended)


def failures_without_record(store: TrainingStore, failures: Iterable[Exit]) -> list[Exit]:
    """Of the failed incarnations, those whose last generation has no record. Raises OSError."""
    return [failure for _, failure in _failures_without_record(store, failures)]


def suspected(store: Path, id: str) -> list[Suspect]:
    """The ranks on which the fault may lie, as far as the nodes left evidence. Raises OSError."""
    token = Token.parse(".".join(id.split(".")[:2]))
    manifests = folder.manifests(store, id)
    return suspects(manifests, heartbeat.read(store, token)) if manifests else []


def began_with(
    store: Path, token: Token, ended: Exit, suspected: list[Suspect]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ranks and the nodes with which it began: those suspected, those that said why they ended, those named.

    A hang of ranks that are all alike began with none of them, as far as is known; the only node is known all the same.
    """
    end = rank_exit.decisive(store, token.incarnation)
    reason = ended.reason.partition(APART)[2] if ended.reason.startswith(HANGS) else ended.reason
    ranks = [suspect.rank for suspect in suspected] or (
        [end.rank] if end else [int(rank) for rank in _RANK.findall(reason)]
    )
    named = [node for node in ended.nodes if re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", reason)]
    if ended.reason.startswith(HANGS) and len(ended.nodes) == 1:
        named = list(ended.nodes)
    nodes = [suspect.node for suspect in suspected if suspect.node] or ([end.node] if end else named)
    return tuple(dict.fromkeys(ranks)), tuple(dict.fromkeys(nodes))


def read_all(store: TrainingStore, facts: TrainingFacts) -> list[IncidentRecord]:
    """The incidents of a training, in order, also of failures that have no record yet; a damaged record is left out.

    Raises OSError.
    """
    by_id = {}
    for name in incidents.names(store.folder):
        path = files.named(store.folder, files.INCIDENTS, name)
        if (record := codec.read_if_whole(path, IncidentRecord, incidents.FORMAT)) is not None:
            by_id[name] = record
    for token, ended in _failures_without_record(store, facts.failures):
        record = _of_exit(store.folder, token, ended)
        by_id.setdefault(record.id, record)
    return [by_id[name] for name in sorted(by_id)]


def suspects_of_fault(fault: TrainingFault, policies: Mapping[str, str]) -> frozenset[str]:
    """The suspects of a fault that ends an incarnation."""
    return frozenset(fault.suspects if causes.answer(fault.kind, policies) == causes.REPLACE else ())


def suspects_on_record(
    folder: Path, incarnation: int, ran_on: Collection[str], policies: Mapping[str, str]
) -> frozenset[str]:
    """The suspects that the incidents of an incarnation name, which ran on these nodes. Raises OSError.

    An incident that cannot be decoded names none, and neither does one that names all of several nodes.
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
    """The ready nodes without the suspects, unless the training would have fewer nodes then."""
    others = [node for node in ready if node not in suspects]
    return others if len(others) >= min(node_count, len(ready)) else list(ready)


def _failures_without_record(store: TrainingStore, failures: Iterable[Exit]) -> list[tuple[Token, Exit]]:
    """The same, each with its last generation."""
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
    return {claim.token.incarnation: claim.token for claim in fence.claims(store)}  # each is later than the one before
