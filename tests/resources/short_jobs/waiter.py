"""A process that wants a short job and waits for it, as a run of Dagster does; a test kills it."""

import json
import sys
from pathlib import Path

from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.short_jobs.attempts import ShortJob
from slipway.resources.short_jobs.running import ShortJobs
from slipway.trainer.base.paths import CODE

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from slipway.trainer.record import job_result
request = json.loads(Path(sys.argv[1]).read_bytes())
if os.environ["RANK"] == "0":
    with Path(request["starts"]).open("a") as starts:
        print("started", file=starts)
if request.get("says"):
    sys.exit(request["says"])
while not Path(request["go"]).exists():
    time.sleep(0.02)
job_result.succeed(Path(request["outcome"]), {"found": 42})
"""


def jobs(root: Path) -> ShortJobs:
    fleet = EmbeddedFleet(root / "nodes", ("node-0", "node-1"), reboot_seconds=60)
    return ShortJobs(LocalLauncher(root / "jobs", CODE, fleet), fleet, root / "durable", poll_seconds=0.05)


def short_job(root: Path, **request: str) -> ShortJob:
    request = {"starts": str(root / "starts"), "go": str(root / "go"), **request}
    return ShortJob("evaluate", "a checkpoint", {"checkpoint": "one"}, ("python", "-c", PROGRAM), request)


if __name__ == "__main__":
    print(json.dumps(jobs(Path(sys.argv[1])).run(short_job(Path(sys.argv[1])), lambda _: None)))
