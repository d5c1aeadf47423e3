"""A trainer that is killed while its writer saves: ``python -m tests.trainer.dies_in_mid_save FOLDER``.

It prints the writer's process id first.
"""

import os
import signal
import sys
from pathlib import Path

from tests.trainer.keeping import held_in_mid_save, saving

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with saving(folder) as kept:
        held_in_mid_save(kept, folder, 2)
        print(kept.writer, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
