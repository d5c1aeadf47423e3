"""What is in force on a rank: the settings of its network and its runtime, and the processors that it may use."""

import os
from typing import Any

from trainer.config.resolved import Config
from trainer.node import affinity, fabric, settings


def in_force(config: Config) -> dict[str, Any]:
    """The settings in force on this rank, with the source of each, and its processors."""
    network, runtime = fabric.in_force(config.hardware, os.environ), settings.in_force(config, os.environ)
    return {"settings": network, "runtime": runtime, "processors": affinity.cpu_list(os.sched_getaffinity(0))}
