"""The objects of some jobs as they reach a cluster, in files to be read: what the code makes must be what they hold."""

import dataclasses
from pathlib import Path

import yaml

from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.launchers.kubernetes.names import object_name
from slipway.resources.launchers.kubernetes.workloads import KINDS
from tests.kubernetes.jobs import LARGE, LONE, RICH, SMALL

QUEUED = dataclasses.replace(LARGE, queue="team-a", spread="pack")
VOLCANO = dataclasses.replace(LARGE, scheduler="volcano", volcano_queue="training", spread="spread")
CASES = {
    **{f"{kind}-rich": (kind, RICH, QUEUED) for kind in KINDS},
    **{f"{kind}-small": (kind, LONE, SMALL) for kind in KINDS},
    "job-volcano": ("job", RICH, VOLCANO),
}
FILES = {name: Path(__file__).parent / f"{name}.yaml" for name in CASES}


def objects(name: str) -> list[KubernetesObject]:
    """What a case creates."""
    kind, job, cluster = CASES[name]
    return KINDS[kind].objects(object_name(job.name), job, cluster)


def text(name: str) -> str:
    """What a case's file holds."""
    return yaml.safe_dump_all(objects(name), sort_keys=True, width=120)
