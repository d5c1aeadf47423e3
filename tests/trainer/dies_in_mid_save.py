"""A trainer that is killed while its writer saves: ``python -m tests.trainer.dies_in_mid_save FOLDER``.

It prints the writer's process id first.
"""

import os
import signal
import sys
from pathlib import Path

from tests.trainer.checkpoints import saving, stop_in_mid_save

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with saving(folder) as saver:
        stop_in_mid_save(saver, folder, 2)
        print(saver.writer, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
