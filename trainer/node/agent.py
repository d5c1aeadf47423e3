"""torchrun on one machine of a job, which joins a rendezvous store that its launcher has started.

``python -P -m slipway.trainer.node.agent ARGUMENT...`` takes torchrun's arguments (with -P, files in the job's folder
cannot replace modules). By itself, torchrun looks in the DNS whether it must host the store. When a pod starts, the DNS
may not know it yet, and then no machine would host the store. torchrun also prints its own traceback after the ranks'
messages.
"""

import os
import sys
from collections.abc import Mapping

from slipway.trainer.base import console

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The index of this machine in the job, from 0; Kubernetes' Indexed Jobs set it."""
ADDRESS_VARIABLE = "SLIPWAY_ADDRESS"
"""The IP address of this machine, by which the others reach it without resolving a name."""
JOIN_SECONDS = 900
"""Time for the machines to find each other, as some still pull their image."""


def arguments(options: list[str], environment: Mapping[str, str]) -> list[str]:
    """Torchrun's arguments on the machine that `environment` describes."""
    return [
        "--rdzv-backend=c10d",
        f"--rdzv-conf=is_host=0,join_timeout={JOIN_SECONDS},read_timeout={JOIN_SECONDS}",
        f"--local-addr={environment[ADDRESS_VARIABLE]}",
        *options,
    ]


def main() -> int:
    """The exit code of the rank that failed first (128 + n if signal n ended it); 1 if the machines do not connect."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    try:
        run.main(arguments(sys.argv[1:], os.environ))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode
        console.warn(f"trainer: rank {rank} ended with exit code {code}")
        return int(code)
    except RendezvousError as error:
        console.warn(f"trainer: the machines of the job did not connect, or lost their rendezvous store: {error!r}")
        return 1
    return 0


if __name__ == "__main__":
    console.explain("slipway.trainer.node.agent", "starts the ranks of a node of a cluster")
    sys.exit(main())
