"""How a run's steps are executed on a cluster: in its own pod where all of them are light, else a pod for each."""

import dagster as dg
from dagster_k8s import k8s_job_executor

from assets.execution.pods import HEAVY, WEIGHT


def _chosen(context: dg.InitExecutorContext) -> dg.Executor:
    """Dagster's executor for the steps of this run. Both read the same configuration."""
    nodes = context.job.get_definition().nodes
    heavy = any(node.tags.get(WEIGHT) == HEAVY for node in nodes)
    chosen = k8s_job_executor if heavy else dg.in_process_executor
    assert chosen.executor_creation_fn is not None
    return chosen.executor_creation_fn(context)


cluster_executor = dg.ExecutorDefinition(
    name="slipway",
    config_schema=k8s_job_executor.config_schema.as_field(),
    requirements=dg.multiple_process_executor_requirements(),
    executor_creation_fn=_chosen,
)
