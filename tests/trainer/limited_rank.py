"""A process that may take no more memory than a limit beyond what its libraries take; a rank under torchrun, or alone.

``python -m tests.trainer.limited_rank MEGABYTES evaluate TINY LARGE`` evaluates what two requests name, the second one
under the limit; ``... MEGABYTES export REQUEST`` exports under it. The limit is the kernel's own on private writable
memory (RLIMIT_DATA), from the moment on at which all is imported and ranks are connected.
"""

import json
import resource
import sys
import threading
from pathlib import Path

from slipway.trainer import evaluate, export
from slipway.trainer.base import codec
from slipway.trainer.elastic.process_groups import join
from slipway.trainer.record import job_result
from slipway.trainer.record.scores import Scores


def limit(megabytes: int) -> None:
    threading.stack_size(256 * 1024)  # the kernel counts a thread's whole stack: 8 MiB that nobody writes to
    lines = Path("/proc/self/status").read_text().splitlines()
    current_bytes = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmData:"))
    most = current_bytes + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def measure(megabytes: int, tiny: Path, large: Path) -> None:
    first, second = (json.loads(path.read_bytes()) for path in (tiny, large))
    with join(evaluate.requested(second)) as world:
        evaluate.evaluate(first, world)
        limit(megabytes)
        scores = evaluate.evaluate(second, world)
        if world.is_rank_zero:
            job_result.succeed(Path(second["outcome"]), codec.plain(Scores(tuple(scores))))


if __name__ == "__main__":
    megabytes, action, *paths = sys.argv[1:]
    if action == "evaluate":
        measure(int(megabytes), *map(Path, paths))
    else:
        from slipway.trainer.checkpoint.disk import load_plan  # noqa: F401 (imported before memory is limited)

        limit(int(megabytes))
        sys.exit(export.main(paths))
