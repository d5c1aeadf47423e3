"""A job as a Kubeflow TrainJob with its own TrainingRuntime, which holds the same JobSet as `jobset`.

The TrainJob overrides nothing in the runtime, since the fields for that have changed with every version of Trainer.
"""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject, Resource
from slipway.resources.launchers.kubernetes import pods, queues, store
from slipway.resources.launchers.kubernetes.workloads import readings
from slipway.resources.launchers.kubernetes.workloads.jobset import job_set_spec
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload, WorkloadReading
from slipway.resources.launchers.protocol import Job

TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", operator="Kubeflow Trainer")
TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", operator="Kubeflow Trainer"
)


class TrainJob(Workload):
    """A TrainJob of trainer.kubeflow.org/v1alpha1, whose controller creates a JobSet with the same name."""

    name = "trainjob"
    resource = TRAIN_JOBS
    parts = (TRAINING_RUNTIMES,)

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        template = {
            "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
            "spec": job_set_spec(name, job, cluster),
        }
        reference = {"apiGroup": TRAINING_RUNTIMES.group, "kind": TRAINING_RUNTIMES.kind, "name": name}
        return [
            *store.parts(name, job, cluster, pods.template(name, job, cluster)),
            *queues.pod_groups(metadata, job, cluster),
            objects.of(TRAINING_RUNTIMES, metadata, {"template": template}),
            objects.of(self.resource, labelled, {"runtimeRef": reference, **queues.suspension(cluster)}),
        ]

    def read(self, main: KubernetesObject) -> WorkloadReading:
        ended = readings.ended(main, succeeded="Complete", failed="Failed")
        if ended:
            return ended
        if main["spec"].get("suspend"):
            return readings.suspended(main)
        return readings.replicated(main, main.get("status", {}).get("jobsStatus") or ())
