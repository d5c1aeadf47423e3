"""What each node of a job runs: a supervisor with the ranks of the built-in trainer, torchrun with those of any other
command, or such a command itself where it is a lone rank. Pure.

Every launcher starts this command; a launcher only says where the ranks meet (`endpoint`) and which Python runs. The
supervisor (`slipway.trainer.supervisor`) and the agent (`slipway.trainer.node.agent`) add what differs from node to
node: whether the node hosts the rendezvous store, and the node's address.
"""

from slipway.resources.launchers.protocol import Job

TRAINER = ("python", "-m", "slipway.trainer")
"""The command of the built-in trainer: supervisors fork its ranks, and restart them in the same job."""
SIBLING_GRACE_SECONDS = 3
"""How long the other ranks of a node may take to end when one of them has failed."""


def node_command(job: Job, config: str, endpoint: str, python: str) -> list[str]:
    """The command that each node of `job` runs: the node process, and below it an agent with ranks or the lone rank.

    config: the path of the job's config on the node. endpoint: ``HOST:PORT`` of the rendezvous store. python: the
    Python of the node, which also stands in for `python` as the first word of the job's own command.
    """
    process = [python, "-P", "-m", "slipway.trainer.node.process"]
    if is_supervised(job):
        return [*process, "supervisor", job.folder, *_supervisor(job, endpoint, python), config]
    kind, command = ("rank", []) if job.is_lone else ("agent", _torchrun(job, endpoint, python))
    process += [kind, job.folder]
    own = [python, *job.command[1:]] if job.command[0] == "python" else list(job.command)
    return [*process, *command, *own, config]


def is_supervised(job: Job) -> bool:
    """Whether supervisors hold the ranks of the job."""
    return job.command == TRAINER


def _supervisor(job: Job, endpoint: str, python: str) -> list[str]:
    """The supervisor. A lone rank has one too: it is forked from what has been imported, which costs it nothing."""
    # -P: a file in the job's folder must not replace a module that it imports.
    return [python, "-P", "-m", "slipway.trainer.supervisor", *_shape(job, endpoint)]


def _torchrun(job: Job, endpoint: str, python: str) -> list[str]:
    """The agent. A lone rank needs none, and is spared the seconds in which an agent imports torch."""
    return [
        *(python, "-P", "-m", "slipway.trainer.node.agent", *_shape(job, endpoint)),
        # torchrun never restarts a rank: the next incarnation does, with a fresh look at checkpoints and nodes.
        *("--max-restarts=0", f"--shutdown-timeout={SIBLING_GRACE_SECONDS}"),
        "--no-python",
    ]


def _shape(job: Job, endpoint: str) -> list[str]:
    """How many nodes and ranks there are, and where they meet."""
    at_least = job.least_nodes
    nodes = job.node_count
    return [
        f"--nnodes={at_least}:{nodes}" if at_least < nodes else f"--nnodes={nodes}",
        f"--nproc-per-node={job.ranks_per_node}",
        f"--rdzv-id={job.name}",
        f"--rdzv-endpoint={endpoint}",
    ]
