"""The NetworkPolicy of a job: its pods reach one another on all ports, but not the pods of other jobs. Pure.

Ranks choose their ports themselves, so the ports cannot be listed. The namespace denies by default; the chart's own
policies add what all jobs may reach (DNS, the object store). The job's order owns the policy, which is removed with it.
"""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, KubernetesObject, Resource
from slipway.resources.launchers.kubernetes import pods, store
from slipway.resources.launchers.protocol import Job

NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")


def parts(name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
    """The policy of a job, to be created before its pods; empty if `network_policy` is off."""
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
