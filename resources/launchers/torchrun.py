"""What each node of a job runs: torchrun with the ranks of the node, or the lone rank itself. Pure.

Every launcher starts this command; a launcher only says where the ranks meet (`endpoint`) and which Python runs. The
agent (`trainer.node.agent`) adds what differs from node to node: whether the node hosts the rendezvous store, and the
node's address.
"""

from resources.launchers.protocol import Job

SIBLING_GRACE_SECONDS = 3
"""How long the other ranks of a node may take to end when one of them has failed."""


def node_command(job: Job, config: str, endpoint: str, python: str) -> list[str]:
    """The command that each node of `job` runs: the node process, and below it an agent with ranks or the lone rank.

    config: the path of the job's config on the node. endpoint: ``HOST:PORT`` of the rendezvous store. python: the
    Python of the node, which also stands in for `python` as the first word of the job's own command.
    """
    kind, command = ("rank", []) if job.is_lone else ("agent", _torchrun(job, endpoint, python))
    process = [python, "-m", "trainer.node.process", kind, job.folder]
    own = [python, *job.command[1:]] if job.command[0] == "python" else list(job.command)
    return [*process, *command, *own, config]


def _torchrun(job: Job, endpoint: str, python: str) -> list[str]:
    """The agent. A lone rank needs none, and is spared the seconds in which an agent imports torch."""
    at_least, nodes = job.least_nodes, job.node_count
    return [
        # -P: a file in the job's folder must not replace a module that the agent imports.
        *(python, "-P", "-m", "trainer.node.agent"),
        *(f"--nnodes={at_least}:{nodes}" if at_least < nodes else f"--nnodes={nodes}",),
        # torchrun never restarts a rank: the next incarnation does, with a fresh look at checkpoints and nodes.
        *(f"--nproc-per-node={job.ranks_per_node}", "--max-restarts=0"),
        *(f"--rdzv-id={job.name}", f"--rdzv-endpoint={endpoint}", f"--shutdown-timeout={SIBLING_GRACE_SECONDS}"),
        "--no-python",
    ]
