"""The supervisor's loop: meet the other nodes, fork ranks, watch them, end them together, and begin again.

It runs in one thread, because a process with several threads cannot be forked safely. It notices the death of a rank at
once (the rank's pidfd becomes readable), and the end of the generation on another node, or the loss of a node, within
`POLL_SECONDS`.
"""

import functools
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipway.trainer.base import console, processes
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.diagnosis import stacks
from slipway.trainer.elastic import forks, incident_records, rendezvous, verdict
from slipway.trainer.elastic.forks import Fork
from slipway.trainer.elastic.generations import MOST, VARIABLE, Arrival, End, Members, key
from slipway.trainer.elastic.job_store import JobStore, StoreGone
from slipway.trainer.elastic.liveness import NodeLiveness
from slipway.trainer.elastic.rendezvous import GenerationOver, NodeCount, Rendezvous
from slipway.trainer.elastic.stop_signal import StopSignal
from slipway.trainer.elastic.verdict import Budget
from slipway.trainer.record import causes, fence, incarnation
from slipway.trainer.record.incarnation import Membership
from slipway.trainer.record.recorder import BEGUN_VARIABLE

POLL_SECONDS = 0.05
LOOK_SECONDS = 0.01
NODES_PER_SECOND = 4000.0
"""The most nodes that query the store in a second, so that one store serves a large job."""
FOLLOW_SECONDS = 3.0
"""The time in which a node that knows the reason may report it, before the failure of a rank that only lost its peers
counts as the cause."""
SILENT_SECONDS = 2.5
"""A supervisor beats each second; without a beat for this time, and with its ranks lost, it has died."""
LEAVING_SECONDS = 10.0
"""Ranks that stay may take this long to leave their collectives; a slower one is started anew."""
ENDING_SECONDS = 3.0
"""Ranks may take this long to end by themselves when the job ends: each may write a last message."""


@dataclass(frozen=True)
class JobPlace:
    """The job and the node of a supervisor."""

    config: Path
    """The resolved configuration."""
    settings: LayoutSettings
    """The settings of the configuration that decide the layout."""
    store: Path
    """The training's durable folder."""
    incarnation: int
    nodes: NodeCount
    own: Arrival
    endpoint: tuple[str, int]
    """Host and port of the job's store, for the ranks."""
    stays: bool = False
    """Whether healthy ranks stay in their processes when a generation ends."""
    helpers: tuple[int, ...] = ()
    """Children of this process that are no ranks."""
    memory: tuple[tuple[int, ...], ...] = ()
    """The buffers of each rank, which outlive it (`slipway.trainer.checkpoint.memory`)."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """The recipe's answers by cause."""


class Supervisor:
    """The ranks of one node, generation by generation."""

    def __init__(self, job: JobPlace, store: JobStore, rank_main: Callable[[list[str]], int]) -> None:
        """`rank_main`: the program of a rank, which takes the path of the configuration and returns an exit code."""
        # The job, and this node's place in it.
        self._job = job
        self._store = store
        self._node = job.own.node

        # What the nodes of the job tell each other.
        self._liveness = NodeLiveness(store, self._node)
        self._stop = StopSignal(store, self._node, replaced=bool(job.nodes.replaced_seconds))
        self._budget = Budget(job.store)
        """How often the job may still start a generation without progress."""

        # The ranks of this node, and the generation that they are in.
        self._rank_main = rank_main
        self._forks: list[Fork] = []
        self._members: Members | None = None
        self._tried: dict[str, str] = {}
        """Variables of the ranks that tell them whether an earlier generation has run in this job."""
        self._moments: dict[str, float] = {}
        """The times of the recovery so far, by name: seconds since the epoch."""
        self._rendezvous = Rendezvous(
            store,
            self._liveness,
            job.own,
            job.nodes,
            job.incarnation,
            self._choose,
            self._grant,
            self._pause_in_rendezvous,
        )

    def run(self) -> int:
        """Run generations until the ranks are done or the job ends; returns the exit code. Raises StoreGone."""
        processes.adopt_orphans()
        before: Members | None = None
        last: End | None = None
        generation = 0
        try:
            current_members = rendezvous.underway(self._store, self._job.own, self._job.stays)
            if current_members:
                before = current_members
                last = self._wait_for_end(current_members)
                generation = current_members.generation + 1
            while True:
                self._stop.raise_if_stopped(generation)
                reason = f"generation {generation - 1} ended: {last.reason}" if last else "first start"
                members = self._rendezvous.members(generation, before, reason, last.joins if last else ())
                self._moments["ranks_gone"] = members.at
                if members.has(self._node):
                    last = self._generation(members, before, last)
                else:
                    last = self._wait_for_end(members)
                if last is None:
                    if not self._stop.leaves:
                        rendezvous.tell_over(self._store)
                    return 0
                before = members
                generation = generation + 1
        except GenerationOver as over:
            if not self._stop.leaves:
                rendezvous.tell_over(self._store)
            return self._exit_code(over.end)
        except StoreGone as gone:
            self._note_gone(gone)
            raise
        finally:
            self._end_ranks()

    def _generation(self, members: Members, before: Members | None, last: End | None) -> End | None:
        """Start the ranks and watch them to their end; returns why the generation ended, None if its ranks are done.

        Raises GenerationOver if the job ends with the generation.
        """
        self._members = members
        self._fork(members)
        if before is not None and last is not None and members.nodes[0] == self._job.own:
            self._note_recovery(before, members, last)
        end = self._watch(members)
        if end is None:
            return None
        if end.kind not in incident_records.NO_INCIDENT:
            stacks.snapshot(members.generation)
        if end.final:
            self._let_end()
        else:
            survivors = self._end_ranks(self._staying(members) if end.ranks_stay else ())
            if survivors:
                reason = f"processes of {self._node} cannot be killed: {survivors}"
                end = End(self._node, causes.MACHINE, reason, final=True, code=1, at=time.time())
                self._store.write_first(key(members.generation + 1, "end"), end)
        if end.kind in slots.DOUBTED:
            slots.forget(self._job.memory)
        if end.kind not in (causes.GROWN, causes.STOP_REQUESTED):
            self._budget.ended(fence.Token(members.incarnation, members.generation))
        spent = self._budget.spent
        if spent and not end.final:
            end = replace(end, final=True, reason=f"{end.reason}; {spent}")
            end = self._store.write_first(key(members.generation + 1, "end"), end)
        if end.final:
            if end.node == self._node:
                incident_records.incident(self._job.store, members, end, self._budget.step, "ended the job")
            raise GenerationOver(end)
        self._moments = {"detected": end.at}
        return end

    def _wait_for_end(self, members: Members) -> End:
        """Ask the generation, which runs without this node, to end, and wait until it does. Raises GenerationOver."""
        self._end_ranks()
        self._stop.is_waiting = True
        rendezvous.ask_to_join(self._store, members, self._job.own, self._job.nodes.most)
        while True:
            end = self._store.read(key(members.generation, "end"), End)
            if end and not end.final:
                self._moments = {"detected": end.at}
                self._stop.is_waiting = False
                return end
            if end or all(self._store.has(key(members.generation, "done", member.node)) for member in members.nodes):
                raise GenerationOver(end or End(self._node, causes.DONE, "all steps are done", True, 0, time.time()))
            self._pause_in_rendezvous(members.generation)

    def _fork(self, members: Members) -> None:
        first = members.first_rank(self._node)
        address, port = self._job.endpoint
        shared = {
            "WORLD_SIZE": members.world,
            "LOCAL_WORLD_SIZE": self._job.own.ranks,
            "GROUP_RANK": members.number(self._node),
            "GROUP_WORLD_SIZE": len(members.nodes),
            MOST: self._job.nodes.most,
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            incarnation.VARIABLE: members.incarnation,
            VARIABLE: members.generation,
            **self._tried,
        }
        if members.generation == 0:
            shared[BEGUN_VARIABLE] = processes.begun_at()
        config = str(self._job.config)
        command = (sys.executable, "-m", "slipway.trainer", config)
        running_forks = {fork.local: fork for fork in self._forks if fork.poll() is None}
        for local in range(self._job.own.ranks):
            memory = slots.named(self._job.memory[local])
            environment = {**shared, **memory, "RANK": first + local, "LOCAL_RANK": local}
            program = functools.partial(self._rank_main, [config])
            if local in running_forks:
                running_forks[local].rank = first + local
            else:
                named = {name: str(value) for name, value in environment.items()}
                running_forks[local] = Fork(first + local, program, named, command)
        self._forks = [running_forks[local] for local in sorted(running_forks)]
        self._tried = {incarnation.TRIED_VARIABLE: "1"}
        self._moments["ranks_ready"] = time.time()

    def _watch(self, members: Members) -> End | None:
        """Watch the ranks until the generation is over; returns why, or None if all its ranks have ended well."""
        end_key = key(members.generation, "end")
        done = False
        follows_since: float | None = None
        others = [member.node for member in members.nodes]
        neighbor = others[(members.number(self._node) + 1) % len(others)]
        was_asked = False
        while True:
            self._wait_for_a_rank(len(members.nodes))
            if self._stop.is_requested and not was_asked:
                was_asked = True
                self._stop.broadcast()
                for fork in self._forks:
                    fork.send(signal.SIGTERM)
            codes = {fork.rank: fork.poll() for fork in self._forks}
            where = self._job.store, self._token(members), self._node
            fault = verdict.fault(codes, *where, self._job.policies)
            if fault and fault.follows:
                follows_since = follows_since or time.monotonic()
                away = [node for node in others if node != self._node]
                silent = [node for node in away if self._liveness.silence(node) > SILENT_SECONDS]
                if silent:
                    self._announce_silent(members, fault, silent)
                if time.monotonic() - follows_since < FOLLOW_SECONDS:
                    fault = None
            if fault:
                self._announce(members, fault)
            end = self._store.read(end_key, End)
            if end:
                return end
            if not done and not any(codes.values()) and None not in codes.values():
                self._store.write(key(members.generation, "done", self._node), {})
                done = True
            if done and all(self._store.has(key(members.generation, "done", node)) for node in others):
                return None
            self._liveness.beat()
            if neighbor != self._node:
                reason = self._liveness.lost(neighbor)
                if reason:
                    self._announce_lost(members, neighbor, reason)

    def _announce(self, members: Members, fault: verdict.RankFault) -> None:
        final = self._stop.is_final(fault, members)
        stays = self._job.stays
        where = (fault.rank,), (fault.node or self._node,)
        end = End(self._node, fault.kind, fault.reason, final, fault.code, time.time(), *where, ranks_stay=stays)
        self._store.write_first(key(members.generation, "end"), end)

    def _announce_silent(self, members: Members, fault: verdict.RankFault, nodes: Sequence[str]) -> None:
        """Announce the end for nodes whose supervisors died with their ranks, and so cannot announce it."""
        reason = f"the supervisor of {', '.join(nodes)} died: it shows no sign of life, and {fault.reason}"
        ranks = tuple(rank for node in nodes for rank in members.ranks(node))
        final = self._stop.ends(members) or verdict.ends_job(causes.KILLED, self._job.policies)
        end = End(self._node, causes.KILLED, reason, final, 1, time.time(), ranks, tuple(nodes))
        self._store.write_first(key(members.generation, "end"), end)

    def _announce_lost(self, members: Members, node: str, reason: str) -> None:
        final = self._stop.ends(members)
        stays = self._job.stays
        where = tuple(members.ranks(node)), (node,)
        end = End(self._node, causes.DISRUPTED, reason, final, 1, time.time(), *where, ranks_stay=stays)
        self._store.write_first(key(members.generation, "end"), end)

    def _choose(self, arrived: Sequence[Arrival], before: Members | None) -> tuple[Arrival, ...]:
        return rendezvous.chosen(arrived, before, self._job.nodes.most, self._job.settings)

    def _grant(self, members: Members, cause: str) -> End | None:
        """Claim the token for the members; why they get none."""
        membership = Membership(":".join(map(str, self._job.endpoint)), members.world)
        kind = causes.SUPERSEDED
        code = int(ExitCode.SUPERSEDED)
        reason = ""
        try:
            nodes = tuple(member.node for member in members.nodes)
            incarnation.granted(self._job.store, self._token(members), membership, nodes, cause)
        except fence.Superseded as error:
            reason = str(error)
            done = fence.read_exit(self._job.store, members.incarnation)
            if done and done.outcome == fence.SUCCEEDED:
                kind = causes.DONE
                code = int(ExitCode.DONE)
        except (OSError, ValueError) as error:
            kind = causes.STORAGE
            code = 1
            reason = str(error)
        return End(self._node, kind, reason, final=True, code=code, at=time.time()) if reason else None

    def _note_gone(self, gone: StoreGone) -> None:
        """Record that the job ends because its store is gone, through which no node can learn it."""
        if self._members:
            self._budget.ended(self._token(self._members))
            end = End(self._node, causes.NETWORK, str(gone), final=True, code=1, at=time.time())
            incident_records.incident(self._job.store, self._members, end, self._budget.step, "ended the job")

    def _note_recovery(self, before: Members, members: Members, last: End) -> None:
        """Record the incident that ended the generation before, and the moments of the recovery so far."""
        how = "healthy ranks stayed" if last.ranks_stay else "the ranks were started anew"
        who = incident_records.divided(self._job.settings, before, members)
        action = f"generation {members.generation} in the same job: {how}{who}"
        incident_records.incident(self._job.store, before, last, self._budget.step, action)
        incident_records.recovery(
            self._job.store, members, dict(sorted(self._moments.items(), key=lambda item: item[1]))
        )

    def _wait_for_a_rank(self, nodes: int) -> None:
        """Wait until a rank ends, or until it is time to read the store again."""
        running = [fork.descriptor for fork in self._forks if fork.poll() is None]
        seconds = max(POLL_SECONDS, nodes / NODES_PER_SECOND)
        select.select(running, [], [], seconds)

    def _let_end(self) -> None:
        """Give the ranks some time to end by themselves, and kill the others."""
        deadline = time.monotonic() + ENDING_SECONDS
        while any(fork.poll() is None for fork in self._forks) and time.monotonic() < deadline:
            self._wait_for_a_rank(1)
        self._end_ranks()

    def _staying(self, members: Members) -> list[Fork]:
        """Wait for the ranks to leave their collectives; returns those that have, and stay."""
        deadline = time.monotonic() + LEAVING_SECONDS
        while True:
            running = [fork for fork in self._forks if fork.poll() is None]
            leaving_forks = [fork for fork in running if self._store.has(key(members.generation, "left", fork.rank))]
            if leaving_forks == running or time.monotonic() > deadline:
                return leaving_forks
            select.select([fork.descriptor for fork in running], [], [], LOOK_SECONDS)

    def _end_ranks(self, staying: Sequence[Fork] = ()) -> list[int]:
        """Kill the ranks but for those that stay; returns the pids of processes that cannot be killed."""
        ending = [fork for fork in self._forks if fork not in staying]
        survivors = forks.kill(ending, [*(fork.pid for fork in staying), *self._job.helpers])
        self._forks = list(staying)
        return survivors

    def _pause_in_rendezvous(self, generation: int) -> None:
        self._liveness.beat()
        self._stop.raise_if_stopped(generation)
        time.sleep(max(LOOK_SECONDS, self._job.nodes.most / NODES_PER_SECOND))

    def _exit_code(self, end: End) -> int:
        """The exit code of this node when the job ends; prints the reason as its last message."""
        if end.kind == causes.DONE:
            return end.code
        if end.node != self._node:
            console.warn(f"trainer: the ranks were ended: {end.reason}")
            return 1
        console.warn(f"trainer: {end.reason}")
        killed = end.code > 128 and end.code != 128 + signal.SIGTERM
        return ExitCode.GIVEN_UP if killed and self._job.nodes.replaced_seconds else end.code

    def _token(self, members: Members) -> fence.Token:
        return fence.Token(members.incarnation, members.generation)
