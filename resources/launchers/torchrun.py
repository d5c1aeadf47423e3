"""The node command of a job: a supervisor with the ranks of the built-in trainer, torchrun with the ranks of any other
command, or for a single rank the command itself. Pure.

Every launcher starts this command, and only adds the rendezvous address (`endpoint`) and the Python. The supervisor
(`slipway.trainer.supervisor`) and the agent (`slipway.trainer.node.agent`) add what differs between nodes: whether the
node hosts the rendezvous store, and the node's address.
"""

from slipway.resources.launchers.protocol import Job

TRAINER = ("python", "-m", "slipway.trainer")
"""The command of the built-in trainer, whose ranks supervisors fork, and restart within the same job."""
SIBLING_GRACE_SECONDS = 3
"""How long the other ranks of a node may take to end after one of them has failed."""


def node_command(job: Job, config: str, endpoint: str, python: str) -> list[str]:
    """The command of each node of `job`: the node process, and below it a supervisor, an agent or the single rank.

    config: the path of the job's config on the node. endpoint: ``HOST:PORT`` of the rendezvous store. python: the
    Python of the node, which also replaces `python` as the first word of the job's own command.
    """
    process = [python, "-P", "-m", "slipway.trainer.node.process"]
    if is_supervised(job):
        return [*process, "supervisor", job.folder, *_supervisor(job, endpoint, python), config]
    own = [python, *job.command[1:]] if job.command[0] == "python" else list(job.command)
    if job.is_lone:
        return [*process, "rank", job.folder, *own, config]
    return [*process, "agent", job.folder, *_torchrun(job, endpoint, python), *own, config]


def is_supervised(job: Job) -> bool:
    """Whether supervisors run the ranks of the job."""
    return job.command == TRAINER


def _supervisor(job: Job, endpoint: str, python: str) -> list[str]:
    """The command of a supervisor. A single rank has one too: forking from a warm process costs nothing."""
    # -P: a file in the job's folder must not replace a module that it imports.
    return [python, "-P", "-m", "slipway.trainer.supervisor", *_shape(job, endpoint)]


def _torchrun(job: Job, endpoint: str, python: str) -> list[str]:
    """The command of a torchrun agent. A single rank needs none, which saves the seconds of importing torch."""
    return [
        *(python, "-P", "-m", "slipway.trainer.node.agent", *_shape(job, endpoint)),
        # torchrun must not restart ranks: the next incarnation does, which checks checkpoints and nodes again.
        *("--max-restarts=0", f"--shutdown-timeout={SIBLING_GRACE_SECONDS}"),
        "--no-python",
    ]


def _shape(job: Job, endpoint: str) -> list[str]:
    """The options for the numbers of nodes and ranks and the rendezvous."""
    at_least = job.least_nodes
    nodes = job.node_count
    return [
        f"--nnodes={at_least}:{nodes}" if at_least < nodes else f"--nnodes={nodes}",
        f"--nproc-per-node={job.ranks_per_node}",
        f"--rdzv-id={job.name}",
        f"--rdzv-endpoint={endpoint}",
    ]
