"""The launcher and the fleet of an embedded instance, opened without Dagster: what a command line asks all day."""

from resources.fleet.embedded import REBOOT_SECONDS, EmbeddedFleet
from resources.home import CODE, NODES, Home
from resources.launchers.local.launcher import LocalLauncher


def fleet(home: Home) -> EmbeddedFleet:
    """The nodes of a home."""
    return EmbeddedFleet(home.nodes, NODES, REBOOT_SECONDS)


def launcher(home: Home) -> LocalLauncher:
    """What runs the jobs of a home."""
    return LocalLauncher(home.jobs, CODE, fleet(home))
