"""A process that submits: ``python -m tests.resources.launchers.submitter FILE GATE`` with a pickled launcher and job.

It submits once the file GATE is there, says so on its output, and lives on until it is killed.
"""

import pickle
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    launcher, job = pickle.loads(Path(sys.argv[1]).read_bytes())
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.001)
    launcher.submit(job)
    print("submitted", flush=True)
    time.sleep(600)
