"""What is in force on a rank: its device, the settings of its network and its runtime, its processors."""

import os
from typing import Any

import torch

from slipway.trainer.config.resolved import Config
from slipway.trainer.node import affinity, environment, fabric, settings
from slipway.trainer.node.world import World


def in_force(config: Config, world: World) -> dict[str, Any]:
    """The ranks and their device, the settings in force on this rank with the source of each, and what it runs on."""
    network, runtime = fabric.in_force(config.hardware, os.environ), settings.in_force(config, os.environ)
    return {
        "world": world.size,
        "device": str(world.device),
        "torch": torch.__version__,
        "settings": network,
        "runtime": runtime,
        "processors": affinity.cpu_list(os.sched_getaffinity(0)),
        "environment": environment.of_process(),
    }
