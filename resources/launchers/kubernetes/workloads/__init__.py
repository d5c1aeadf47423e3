"""The kinds of workload, the objects that run a job's pods: each file writes a job as one kind, and reads it.

To add a kind, write its file, add it to `KINDS`, and run `slipway cluster schema` and `slipway cluster render`: the
choices of the settings, the mirror, the messages and the rights follow
(`slipway.resources.launchers.kubernetes.access`).
"""

from collections.abc import Mapping

from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.kubernetes.workloads.pytorch_job import PyTorchJob
from slipway.resources.launchers.kubernetes.workloads.train_job import TrainJob

KINDS: Mapping[str, Workload] = {kind.name: kind for kind in (JobSet(), IndexedJob(), TrainJob(), PyTorchJob())}
"""By their names in the platform's settings."""
