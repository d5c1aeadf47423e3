"""The faults that chaos brings about, with the causes that the platform should name.

On an embedded instance each is done to real processes, files and connections of one job, as a machine would do it; on a
cluster, to pods and nodes by the API server, and to ranks by themselves. To add one: write a function of a `JobTarget`
(or a `ClusterTarget`) and a draw that returns what it did, or None where there is nothing to do it to, and give it a
line in `FAULTS`.
"""

from dataclasses import dataclass
from signal import SIGKILL, SIGSEGV, SIGSTOP, SIGTERM

from slipway.operations.chaos import cluster, harm, signals
from slipway.operations.chaos.cluster import ClusterAct, ClusterTarget
from slipway.operations.chaos.processes import KEEPER, NODE, RANK, STORE, SUPERVISOR
from slipway.operations.chaos.signals import signalled
from slipway.operations.chaos.target import Act, Done, JobTarget
from slipway.trainer.record import causes, drills

AWAY_SECONDS = 30.0


@dataclass(frozen=True)
class ChaosFault:
    """One fault."""

    what: str
    """For a person: what happens."""
    kinds: tuple[str, ...]
    """The causes that name it rightly, of `slipway.trainer.record.causes`; none where the training must not notice
    it."""
    act: Act | None
    """Do it on an embedded instance; None where there is no such thing."""
    on_cluster: ClusterAct | None = None
    """Do it on a cluster; None where the API server cannot."""
    usual: bool = True
    """Whether it is drawn unless others are asked for; one that no training survives is not."""

    def do(self, target: JobTarget | ClusterTarget, draw: float) -> Done | None:
        """Do it to the part of a target that the number from 0 to 1 chooses; None where there is nothing to do."""
        if isinstance(target, ClusterTarget):
            return self.on_cluster(target, draw) if self.on_cluster else None
        return self.act(target, draw) if self.act else None


FAULTS = {
    "rank-killed": ChaosFault(
        "A rank gets SIGKILL.", (causes.KILLED,), signalled(SIGKILL, RANK), harm.drilled(drills.KILL)
    ),
    "rank-crashed": ChaosFault(
        "A rank gets SIGSEGV.", (causes.KILLED,), signalled(SIGSEGV, RANK), harm.drilled(drills.CRASH)
    ),
    "rank-stopped": ChaosFault(
        "A rank gets SIGSTOP: it hangs.", (causes.HUNG,), signalled(SIGSTOP, RANK), harm.drilled(drills.STOP)
    ),
    "rank-slow": ChaosFault(
        f"A rank is slow for {drills.SLOW_SECONDS:.0f} s.",
        (causes.STRAGGLER,),
        harm.drilled(drills.SLOW),
        harm.drilled(drills.SLOW),
    ),
    "two-ranks-killed": ChaosFault("Two ranks get SIGKILL at once.", (causes.KILLED,), signals.two_killed),
    "killed-in-recovery": ChaosFault(
        "A rank gets SIGKILL, and another one while the training recovers.",
        (causes.KILLED,),
        signals.killed_in_recovery,
    ),
    "supervisor-killed": ChaosFault(
        "The supervisor of a node gets SIGKILL.", (causes.KILLED,), signalled(SIGKILL, SUPERVISOR)
    ),
    "supervisor-crashed": ChaosFault(
        "The supervisor of a node gets SIGSEGV.", (causes.KILLED,), signalled(SIGSEGV, SUPERVISOR)
    ),
    "supervisor-stopped": ChaosFault(
        "The supervisor of a node gets SIGSTOP.", (causes.KILLED, causes.DISRUPTED), signalled(SIGSTOP, SUPERVISOR)
    ),
    "keeper-killed": ChaosFault("The keeper of the job gets SIGKILL.", (causes.KILLED,), signalled(SIGKILL, KEEPER)),
    "keeper-crashed": ChaosFault("The keeper of the job gets SIGSEGV.", (causes.KILLED,), signalled(SIGSEGV, KEEPER)),
    "keeper-stopped": ChaosFault(
        f"The keeper of the job stands still for {AWAY_SECONDS:.0f} s.",
        (),
        signalled(SIGSTOP, KEEPER, seconds=AWAY_SECONDS),
    ),
    "store-killed": ChaosFault("The rendezvous store gets SIGKILL.", (causes.NETWORK,), signalled(SIGKILL, STORE)),
    "store-stopped": ChaosFault(
        "The rendezvous store stands still: it answers nobody.", (causes.NETWORK,), signalled(SIGSTOP, STORE)
    ),
    "node-killed": ChaosFault("A node loses its power.", (causes.DISRUPTED,), signals.node_killed(first=False)),
    "first-node-killed": ChaosFault(
        "The node of rank 0 loses its power.", (causes.DISRUPTED,), signals.node_killed(first=True)
    ),
    "node-stopped": ChaosFault(
        "A node stands still.", (causes.HUNG, causes.KILLED, causes.DISRUPTED), signals.node_stopped
    ),
    "node-asked": ChaosFault(
        "A node gets SIGTERM, as before a maintenance: no failure, and so no incident.",
        (),
        signalled(SIGTERM, NODE),
        cluster.pod_deleted(None),
    ),
    "pod-deleted": ChaosFault(
        "A pod is deleted at once.", (causes.DISRUPTED, causes.KILLED), None, cluster.pod_deleted(0)
    ),
    "node-cordoned": ChaosFault(
        f"New work is kept away from a node for {cluster.CORDONED_SECONDS:.0f} s.", (), None, cluster.node_cordoned
    ),
    "network-cut": ChaosFault("All connections of a rank end.", (causes.NETWORK,), harm.network_cut),
    "node-partitioned": ChaosFault(
        f"What is sent to a node is lost for {harm.PARTITION_SECONDS:.0f} s.",
        (causes.NETWORK, causes.DISRUPTED),
        harm.partitioned,
    ),
    "checkpoint-damaged": ChaosFault(
        "A bit of the newest checkpoint flips, and a rank gets SIGKILL.", (causes.KILLED,), harm.damaged
    ),
    "disk-full": ChaosFault(
        f"There is no room for checkpoints for {harm.FULL_SECONDS:.0f} s.", (causes.STORAGE,), harm.disk_full
    ),
    "save-stalled": ChaosFault(
        f"A checkpoint's disk does not answer for {harm.STALL_SECONDS:.0f} s.", (causes.STORAGE,), harm.save_stalled
    ),
    "gradients-not-finite": ChaosFault(
        "The gradients of a step are not finite, once.",
        (causes.DIVERGED,),
        harm.drilled(drills.NAN),
        harm.drilled(drills.NAN),
    ),
    "gradients-never-finite": ChaosFault(
        "The gradients are not finite for ever.",
        (causes.DIVERGED,),
        harm.drilled(drills.NAN_FOR_EVER),
        harm.drilled(drills.NAN_FOR_EVER),
        usual=False,
    ),
    "loss-spike": ChaosFault(
        "The loss of a step is far too large.", (causes.SPIKE,), harm.drilled(drills.SPIKE), harm.drilled(drills.SPIKE)
    ),
    "weights-flipped": ChaosFault(
        "A bit of the weights of one rank flips.",
        (causes.CORRUPTION,),
        harm.drilled(drills.FLIP),
        harm.drilled(drills.FLIP),
    ),
    "exchange-hung": ChaosFault(
        "A rank waits in an exchange for a message that nobody sends.",
        (causes.HUNG,),
        harm.drilled(drills.HANG),
        harm.drilled(drills.HANG),
    ),
    "control-plane-stopped": ChaosFault(
        f"Dagster stands still for {AWAY_SECONDS:.0f} s.", (), signals.control_plane_stopped(AWAY_SECONDS)
    ),
    "object-store-away": ChaosFault(
        f"The object store of the instance, on the same machine, stands still for {AWAY_SECONDS:.0f} s.",
        (),
        signals.object_store_away(AWAY_SECONDS),
    ),
    "tracking-away": ChaosFault(
        f"MLflow's database cannot be used for {AWAY_SECONDS:.0f} s.", (), signals.tracking_away(AWAY_SECONDS)
    ),
}
"""By name. A fault may find no target: several need more than one rank, and those that ranks do to themselves need
`recovery.drills`."""


def possible(on_cluster: bool) -> list[str]:
    """The names of those that can be done on an embedded instance, or on a cluster."""
    return [name for name, fault in FAULTS.items() if (fault.on_cluster if on_cluster else fault.act)]


def usual(on_cluster: bool = False) -> list[str]:
    """The names of those that can be done and that a training survives."""
    return [name for name in possible(on_cluster) if FAULTS[name].usual]
