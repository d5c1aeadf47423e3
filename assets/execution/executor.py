"""Executes a run's steps on a cluster: in the run's pod if all of them are light, otherwise in a pod for each step.

A run may configure the number of parallel steps and their retries. The platform decides all other settings of
Dagster's executor, such as the images, accounts, mounts and variables of pods.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster import DagsterEvent
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandlerContext,
)
from dagster_k8s import k8s_job_executor
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.executor import K8sStepHandler
from dagster_k8s.job import UserDefinedDagsterK8sConfig

from slipway.assets.execution import pods
from slipway.assets.execution.pods import HEAVY, WEIGHT
from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import EVENTS, NODES, PODS
from slipway.resources.launchers.kubernetes import pod_facts
from slipway.resources.launchers.kubernetes.status import wait_by_events, wait_by_pods
from slipway.resources.platform import ComputeSettings
from slipway.resources.steps import misfit

CONFIGURED = ("max_concurrent", "retries", "step_dependency_config", "tag_concurrency_limits")
"""The fields that a person may set below `execution` in the launchpad; Dagster's other fields could give pods any
rights."""
LOOK_SECONDS = 10
"""Seconds between two checks of the steps' pods, so that the reason for a wait appears well within a minute."""
OF_JOB = "job-name"
"""The label that Kubernetes sets on the pods of a Job."""


def cluster_executor(compute: ComputeSettings) -> dg.ExecutorDefinition:
    """The executor for runs on the cluster with these settings."""

    def chosen(context: dg.InitExecutorContext) -> dg.Executor:
        """Dagster's executor for the steps of this run. Both executors read the same configuration."""
        nodes = context.job.get_definition().nodes
        if any(node.tags.get(WEIGHT) == HEAVY for node in nodes):
            return step_pods(context, compute)
        assert dg.in_process_executor.executor_creation_fn is not None
        return dg.in_process_executor.executor_creation_fn(context)

    dagsters = k8s_job_executor.config_schema.as_field().config_type.fields  # type: ignore[attr-defined]
    return dg.ExecutorDefinition(
        name="slipway",
        config_schema={name: dagsters[name] for name in CONFIGURED},
        requirements=dg.multiple_process_executor_requirements(),
        executor_creation_fn=chosen,
    )


class StepPods(K8sStepHandler):
    """Dagster's step handler, with the resources of this cluster."""

    def __init__(self, compute: ComputeSettings, client: Client, **dagsters: Any) -> None:
        super().__init__(**dagsters)
        self._compute = compute
        self._client = client
        self._refused: dict[str, str] = {}
        self._reported_reasons: dict[str, str] = {}

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Launch the step's pod. If no node is large enough, the next health check fails the step with the reason."""
        step = self._get_step_key(step_handler_context)
        context = self._get_container_context(step_handler_context)
        config = context.run_k8s_config
        requests = config.container_config["resources"]["requests"]
        selector = config.pod_spec_config.get("node_selector") or {}
        with contextlib.suppress(Unavailable):  # if the cluster does not answer, its size is unknown
            reason = misfit(requests, self._client.list(NODES, selector))
            if reason:
                remedy = _remedy(step_handler_context, step)
                self._refused[step] = f"the pod of {step} fits on no node: {reason}. {remedy}"
                return
        yield from super().launch_step(step_handler_context)

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Dagster's answer. The reason why a pod waits goes to the run's log, once for each reason."""
        step = self._get_step_key(step_handler_context)
        if step in self._refused:
            return CheckStepHealthResult.unhealthy(self._refused[step])
        health = super().check_step_health(step_handler_context)
        if health.is_healthy:
            with contextlib.suppress(Unavailable):
                self._say(step_handler_context, step, self._wait(step_handler_context))
        return health

    def _wait(self, context: StepHandlerContext) -> str:
        """The reason why the step's pod waits; empty once it has started, or if it is unknown."""
        job = self._get_k8s_step_job_name(context)
        namespace = str(self._get_container_context(context).namespace)
        there = [pod_facts.of(pod) for pod in self._client.list(PODS, {OF_JOB: job}, namespace)]
        if any(pod.started_at for pod in there):
            return ""
        reason = wait_by_pods(there)
        if reason:
            return reason
        return wait_by_events(self._client.list(EVENTS, {}, namespace), job)

    def _say(self, context: StepHandlerContext, step: str, reason: str) -> None:
        if reason and self._reported_reasons.get(step) != reason:
            self._reported_reasons[step] = reason
            context.instance.report_engine_event(f"{step} waits: {reason}", context.dagster_run, step_key=step)

    def _get_container_context(self, step_handler_context: StepHandlerContext) -> K8sContainerContext:
        context = super()._get_container_context(step_handler_context)
        tags = step_handler_context.step_tags[self._get_step_key(step_handler_context)]
        sandbox = pods.sandbox(tags, self._compute.steps)
        amounts = {"resources": pods.requested_amounts(tags, self._compute.steps)}
        spec = {"runtime_class_name": sandbox} if sandbox else {}
        container_context = UserDefinedDagsterK8sConfig(container_config=amounts, pod_spec_config=spec)
        return context.merge(K8sContainerContext(run_k8s_config=container_context))


def step_pods(context: dg.InitExecutorContext, compute: ComputeSettings) -> StepDelegatingExecutor:
    """Dagster's executor of steps in pods, with Slipway's step handler."""
    assert k8s_job_executor.executor_creation_fn is not None
    dagsters = k8s_job_executor.executor_creation_fn(context)
    assert isinstance(dagsters, StepDelegatingExecutor)
    handler = dagsters._step_handler
    assert isinstance(handler, K8sStepHandler)
    step_pods = StepPods(
        compute,
        Client(handler._kubeconfig_file or "", compute.context if handler._kubeconfig_file else ""),
        image=handler._executor_image,
        container_context=handler._executor_container_context,
        load_incluster_config=handler._kubeconfig_file is None,
        kubeconfig_file=handler._kubeconfig_file,
        per_step_k8s_config=handler._per_step_k8s_config,
        enable_owner_references=handler._enable_owner_references,
    )
    dagsters._step_handler = step_pods
    dagsters._check_step_health_interval_seconds = LOOK_SECONDS
    return dagsters


def _remedy(context: StepHandlerContext, step: str) -> str:
    work = context.step_tags[step][pods.WORK]
    return (
        f"Ask for less where it is asked: resources of the dataset's or suite's recipe, placement.steps.{work} of a "
        f"training's, or compute.steps.needs.{work} and compute.steps.most in the platform's settings"
    )
