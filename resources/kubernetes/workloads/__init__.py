"""The kinds of object that run a job's pods, each in a file: how a job is written as one, and how one is read."""

from collections.abc import Mapping

from resources.kubernetes.workloads.indexed_job import IndexedJob
from resources.kubernetes.workloads.jobset import JobSet
from resources.kubernetes.workloads.protocol import Workload
from resources.kubernetes.workloads.pytorch_job import PyTorchJob
from resources.kubernetes.workloads.train_job import TrainJob

KINDS: Mapping[str, Workload] = {
    "jobset": JobSet(),
    "job": IndexedJob(),
    "trainjob": TrainJob(),
    "pytorchjob": PyTorchJob(),
}
"""By what the platform's settings call them."""
