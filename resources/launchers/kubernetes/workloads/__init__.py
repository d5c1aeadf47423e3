"""The kinds of workload, which are the objects that run a job's pods. Each file writes and reads one kind.

To add a kind, write its file, add it to `KINDS`, and run `slipway cluster schema` and `slipway cluster render`. The
choices in the settings, the mirror, the messages and the access rights follow from `KINDS`
(`slipway.resources.launchers.kubernetes.access`).
"""

from collections.abc import Mapping

from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.kubernetes.workloads.pytorch_job import PyTorchJob
from slipway.resources.launchers.kubernetes.workloads.train_job import TrainJob

KINDS: Mapping[str, Workload] = {kind.name: kind for kind in (JobSet(), IndexedJob(), TrainJob(), PyTorchJob())}
"""The kinds by their names in the platform's settings."""
