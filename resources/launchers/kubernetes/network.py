"""The NetworkPolicy of a job: its pods reach one another on all ports, and no other job's. Pure.

Ranks choose their ports themselves, so that no list of ports would do. The namespace denies by default; what all jobs
may reach besides (DNS, the object store) stands in the chart's own policies, which add to this one. Its owner is the
job's order: it comes and goes with the job.
"""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, KubernetesObject, Resource
from slipway.resources.launchers.kubernetes import pods, store
from slipway.resources.launchers.protocol import Job

NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")


def parts(name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
    """The policy of a job, to be created before its pods; none where policies are left to others."""
    if not cluster.network_policy:
        return []
    own = {"matchExpressions": [{"key": JOB, "operator": "In", "values": [name, store.name_of(name)]}]}
    spec: KubernetesObject = {
        "podSelector": own,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": own}]}],
        "egress": [{"to": [{"podSelector": own}]}],
    }
    return [objects.of(NETWORK_POLICIES, pods.metadata(name, job), spec)]
