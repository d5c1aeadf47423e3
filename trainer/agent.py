"""torchrun on one of a job's machines, of which the first hosts the rendezvous store.

``python -P -m trainer.agent ARGUMENT...`` takes torchrun's arguments (-P: what lies in the job's folder must not stand
in for a module). torchrun alone asks the DNS whether it is to host the store, and when a pod starts, the DNS may not
know the pod yet: then nobody would. And it ends with a stack of its own after the ranks' last words.
"""

import os
import sys
from collections.abc import Mapping

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The place of this machine in the job, from 0; Kubernetes' Indexed Jobs set it."""
ADDRESS_VARIABLE = "SLIPWAY_ADDRESS"
"""The IP address of this machine, for the others: no name needs to be resolved."""
JOIN_SECONDS = 900
"""What the machines get to find each other in: images are pulled meanwhile."""


def arguments(given: list[str], environment: Mapping[str, str]) -> list[str]:
    """Torchrun's arguments on the machine that `environment` describes."""
    is_host = int(environment[INDEX_VARIABLE] == "0")
    return [
        "--rdzv-backend=c10d",
        f"--rdzv-conf=is_host={is_host},join_timeout={JOIN_SECONDS},read_timeout={JOIN_SECONDS}",
        f"--local-addr={environment[ADDRESS_VARIABLE]}",
        *given,
    ]


def main() -> int:
    """The exit code of the rank that failed first, 128 + n when signal n ended it; 1 when the machines do not meet."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    try:
        run.main(arguments(sys.argv[1:], os.environ))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode
        print(f"trainer: rank {rank} ended with exit code {code}", file=sys.stderr)
        return int(code)
    except RendezvousError as error:
        print(f"trainer: the machines of the job have not met, or lost the first of them: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
