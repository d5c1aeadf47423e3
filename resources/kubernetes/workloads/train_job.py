"""A job as a Kubeflow TrainJob with a TrainingRuntime of its own, which holds the JobSet as we write it.

Nothing of the runtime is overridden: what TrainJobs may override has changed with every version of Trainer.
"""

from resources.kubernetes import objects, pods, queues
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import CONTAINER, TRAIN_JOBS, TRAINING_RUNTIMES, Object
from resources.kubernetes.workloads import conditions
from resources.kubernetes.workloads.jobset import job_set_spec
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import Job


class TrainJob:
    """trainer.kubeflow.org/v1alpha1, whose controller makes a JobSet of the same name."""

    resource = TRAIN_JOBS
    container = CONTAINER

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        template = {
            "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
            "spec": job_set_spec(name, job, cluster),
        }
        reference = {"apiGroup": TRAINING_RUNTIMES.group, "kind": TRAINING_RUNTIMES.kind, "name": name}
        return [
            *queues.pod_groups(metadata, job, cluster),
            objects.of(TRAINING_RUNTIMES, metadata, {"template": template}),
            objects.of(self.resource, labelled, {"runtimeRef": reference, **queues.suspension(cluster)}),
        ]

    def read(self, main: Object) -> Reading:
        if ended := conditions.ended(main, succeeded="Complete", failed="Failed"):
            return ended
        if main["spec"].get("suspend"):
            return conditions.suspended(main)
        return conditions.replicated(main, main.get("status", {}).get("jobsStatus") or ())
