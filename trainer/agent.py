"""torchrun on one of a job's machines, of which the first hosts the rendezvous store.

``python -m trainer.agent ARGUMENT...`` becomes torchrun. torchrun alone asks the DNS whether it is to host the store,
and when a pod starts, the DNS may not know its name yet: then nobody would.
"""

import os
import sys

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The place of this machine in the job, from 0; Kubernetes' Indexed Job sets it."""
ADDRESS_VARIABLE = "SLIPWAY_ADDRESS"
"""The IP address of this machine, for the others: no name needs to be resolved."""
JOIN_SECONDS = 900
"""What the machines get to find each other in: images are pulled meanwhile."""


def torchrun(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """The command that torchrun is started with on the machine that `environment` describes."""
    is_host = int(environment[INDEX_VARIABLE] == "0")
    return [
        # -P: what lies in the job's folder must not stand in for a module of the agent's.
        *(sys.executable, "-P", "-m", "torch.distributed.run", "--rdzv-backend=c10d"),
        f"--rdzv-conf=is_host={is_host},join_timeout={JOIN_SECONDS},read_timeout={JOIN_SECONDS}",
        f"--local-addr={environment[ADDRESS_VARIABLE]}",
        *arguments,
    ]


def main() -> None:
    os.execv(sys.executable, torchrun(sys.argv[1:], dict(os.environ)))


if __name__ == "__main__":
    main()
