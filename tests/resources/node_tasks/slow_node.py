"""A node task whose all-reduces are slow on node-2, as those of a node with a bad cable are: a fault for the tests."""

import os
import sys
import time

from slipway.trainer import node_task
from slipway.trainer.preflight import collective

SECONDS = 2.0
"""What each exchange with the node takes more: far more than a busy machine makes of any other."""

if os.environ["SLIPWAY_NODE"] == "node-2":
    measured = collective._timed

    def slowly(world, values, count):
        begun = time.perf_counter()
        measured(world, values, count)
        time.sleep(SECONDS * count)
        return time.perf_counter() - begun

    collective._timed = slowly

sys.exit(node_task.main(sys.argv[1:]))
