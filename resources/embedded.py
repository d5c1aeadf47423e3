"""The launcher and the fleet of an embedded instance, opened without Dagster: what a command line asks all day."""

from resources.fleet.embedded import REBOOT_SECONDS, EmbeddedFleet
from resources.fleet.health.door import NodeHealth
from resources.fleet.health.register import NodeRegister
from resources.fleet.health.standing import HealthRules
from resources.home import CODE, NODES, Home
from resources.launchers.local.launcher import LocalLauncher


def fleet(home: Home) -> EmbeddedFleet:
    """The nodes of a home."""
    return EmbeddedFleet(home.nodes, NODES, REBOOT_SECONDS)


def node_health(home: Home) -> NodeHealth:
    """The one door to the standings of these nodes."""
    return NodeHealth(NodeRegister(home.durable), HealthRules(apply=True), fleet(home).nodes)


def launcher(home: Home) -> LocalLauncher:
    """What runs the jobs of a home."""
    return LocalLauncher(home.jobs, CODE, fleet(home))
