"""What a click in the UI sends to the webserver: launch a run, launch it again, terminate it; reload definitions."""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on Error { message }
  }
}
"""
LAUNCH_AGAIN = """
mutation LaunchAgain($params: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on Error { message }
  }
}
"""
_TERMINATE = """
mutation Terminate($run: String!) {
  terminateRun(runId: $run) {
    __typename
    ... on Error { message }
  }
}
"""

_RELOAD = """
mutation Reload($location: String!) {
  reloadRepositoryLocation(repositoryLocationName: $location) {
    __typename
    ... on Error { message }
  }
}
"""


def launch(url: str, location: str, assets: Sequence[dg.AssetKey], tags: Mapping[str, str]) -> str:
    """Ask for a run that materialises the assets; returns its id."""
    selector = {
        "repositoryLocationName": location,
        "repositoryName": "__repository__",
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": list(key.path)} for key in assets],
    }
    entries = [{"key": name, "value": value} for name, value in tags.items()]
    params = {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": entries}}
    run: str = _execute(url, LAUNCH, {"params": params}, "launchRun", "LaunchRunSuccess")["run"]["runId"]
    return run


def launch_job(url: str, location: str, job: str, partition: str | None, config: Mapping[str, Any]) -> str:
    """Ask for a run of a job, for a partition where it has some, with the configuration of its ops; returns its id."""
    selector = {"repositoryLocationName": location, "repositoryName": "__repository__", "jobName": job}
    tags = [{"key": PARTITION_NAME_TAG, "value": partition}] if partition is not None else []
    params = {"selector": selector, "runConfigData": {"ops": config}, "executionMetadata": {"tags": tags}}
    run: str = _execute(url, LAUNCH, {"params": params}, "launchRun", "LaunchRunSuccess")["run"]["runId"]
    return run


def launch_again(url: str, run: str) -> str:
    """Ask for the run to be executed again; returns the new run's id."""
    params = {"parentRunId": run, "strategy": "ALL_STEPS"}
    answer = _execute(url, LAUNCH_AGAIN, {"params": params}, "launchRunReexecution", "LaunchRunSuccess")
    again: str = answer["run"]["runId"]
    return again


def terminate(url: str, run: str) -> None:
    """Ask for the run's cancellation."""
    _execute(url, _TERMINATE, {"run": run}, "terminateRun", "TerminateRunSuccess")


def reload(url: str, location: str) -> None:
    """Load the definitions again; returns when they are loaded."""
    _execute(url, _RELOAD, {"location": location}, "reloadRepositoryLocation", "WorkspaceLocationEntry")


def _execute(url: str, query: str, variables: Mapping[str, Any], field: str, expected: str) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        answer = json.load(response)
    assert answer.get("data") and answer["data"][field]["__typename"] == expected, answer
    return answer["data"][field]
