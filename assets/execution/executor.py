"""How a run's steps are executed on a cluster: in its own pod where all of them are light, else a pod for each.

Of what Dagster's executor can be configured with, a run may say how many steps run at once, and when they are tried
again. Everything else, such as images, accounts, mounts and variables of pods, is the platform's.
"""

import dagster as dg
from dagster_k8s import k8s_job_executor

from slipway.assets.execution.pods import HEAVY, WEIGHT
from slipway.assets.execution.step_pods import step_pods
from slipway.resources.platform import ComputeSettings

ASKED = ("max_concurrent", "retries", "step_dependency_config", "tag_concurrency_limits")
"""What a person may write below `execution` in the launchpad; Dagster's other fields would give pods any rights."""


def cluster_executor(compute: ComputeSettings) -> dg.ExecutorDefinition:
    """What executes runs on the cluster of these settings."""

    def chosen(context: dg.InitExecutorContext) -> dg.Executor:
        """Dagster's executor for the steps of this run. Both read the same configuration."""
        nodes = context.job.get_definition().nodes
        if any(node.tags.get(WEIGHT) == HEAVY for node in nodes):
            return step_pods(context, compute)
        assert dg.in_process_executor.executor_creation_fn is not None
        return dg.in_process_executor.executor_creation_fn(context)

    dagsters = k8s_job_executor.config_schema.as_field().config_type.fields  # type: ignore[attr-defined]
    return dg.ExecutorDefinition(
        name="slipway",
        config_schema={name: dagsters[name] for name in ASKED},
        requirements=dg.multiple_process_executor_requirements(),
        executor_creation_fn=chosen,
    )
