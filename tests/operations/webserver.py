"""Dagster's webserver over definitions of our own, asked as the UI asks it: by GraphQL.

It runs in this process, and so do the runs that a test has executed: what is asked, validated, stored and executed is
what a click in the UI asks for.
"""

import contextlib
import socket
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import uvicorn
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.storage.tags import PARTITION_NAME_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.testclient import TestClient

from tests.drills.graphql import LAUNCH, LAUNCH_AGAIN

OVERRIDES: dict[str, Any] = {
    "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"},
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
    "nux": {"enabled": False},
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"},
}
"""Runs wait in the queue until a test has them executed, here and now."""
_SEVERAL = """
mutation Several($params: [ExecutionParams!]!) {
  launchMultipleRuns(executionParamsList: $params) {
    __typename
    ... on LaunchMultipleRunsResult { launchMultipleRunsResult { __typename ... on Error { message } } }
    ... on Error { message }
  }
}
"""
_BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on Error { message }
  }
}
"""
_SCHEMA = """
query Schema($selector: PipelineSelector!) {
  runConfigSchemaOrError(selector: $selector) {
    ... on RunConfigSchema {
      rootDefaultYaml
      allConfigTypes {
        ... on EnumConfigType { givenName values { value } }
        ... on CompositeConfigType { fields { name } }
      }
    }
  }
}
"""
_VALID = """
query Valid($pipeline: PipelineSelector!, $config: RunConfigData!) {
  isPipelineConfigValid(pipeline: $pipeline, runConfigData: $config, mode: "default") {
    __typename
    ... on RunConfigValidationInvalid { errors { message } }
    ... on Error { message }
  }
}
"""
_JOBS = """
query Jobs($selector: RepositorySelector!) {
  repositoryOrError(repositorySelector: $selector) { ... on Repository { jobs { name } } }
}
"""


class Webserver:
    """The webserver of one code location, whose definitions a file makes."""

    def __init__(self, context: WorkspaceProcessContext) -> None:
        self._context = context
        self.app = create_app_from_workspace_process_context(context)
        self._client = TestClient(self.app)
        self._location = {"repositoryLocationName": "slipway", "repositoryName": "__repository__"}

    def jobs(self) -> list[str]:
        """The names of all jobs."""
        answer = self._ask(_JOBS, {"selector": self._location})
        return [job["name"] for job in answer["repositoryOrError"]["jobs"]]

    def schema(self, job: str) -> dict[str, Any]:
        """What the launchpad of a job offers: its default text, enumerations, and the names of all fields."""
        schema = self._ask(_SCHEMA, {"selector": {**self._location, "pipelineName": job}})["runConfigSchemaOrError"]
        types = schema["allConfigTypes"]
        return {
            "text": schema["rootDefaultYaml"],
            "choices": {
                config_type["givenName"]: [v["value"] for v in config_type["values"]]
                for config_type in types
                if "values" in config_type
            },
            "fields": {field["name"] for config_type in types for field in config_type.get("fields", ())},
        }

    def refusals(self, job: str, partition: str | None = None) -> list[str]:
        """What the launchpad of a job finds wrong with the text that it opens with."""
        text = self.schema(job)["text"]
        pipeline = {**self._location, "pipelineName": job}
        validation = self._ask(_VALID, {"pipeline": pipeline, "config": text})["isPipelineConfigValid"]
        if validation["__typename"] == "PipelineConfigValidationValid":
            return []
        return [error["message"] for error in validation["errors"]]

    def launch(self, job: str, config: Mapping[str, Any] | None = None, partition: str | None = None) -> str:
        """Ask for a run of a job with the configuration of its ops; returns the run's id."""
        answer = self._ask(LAUNCH, {"params": self._params(job, config or {}, partition, ())})["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def materialize_each(self, asset: dg.AssetKey, partitions: Sequence[str]) -> list[str]:
        """Ask for a run for each partition of an asset, all in one request; what became of each."""
        params = [self._params("__ASSET_JOB", {}, partition, [asset]) for partition in partitions]
        answer = self._ask(_SEVERAL, {"params": params})["launchMultipleRuns"]
        return [result["__typename"] for result in answer["launchMultipleRunsResult"]]

    def backfill(self, assets: Sequence[dg.AssetKey], partitions: Sequence[str]) -> str:
        """Ask for a backfill of some partitions; returns its id."""
        params = {"assetSelection": [{"path": list(key.path)} for key in assets], "partitionNames": list(partitions)}
        answer = self._ask(_BACKFILL, {"params": params})["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def again(self, run: str) -> str:
        """Ask for a run to be executed again; returns the new run's id."""
        answer = self._ask(LAUNCH_AGAIN, {"params": {"parentRunId": run, "strategy": "ALL_STEPS"}})[
            "launchRunReexecution"
        ]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def execute(self, run: str) -> dict[str, Any]:
        """Execute a run that waits; its output's metadata, or the sentence with which it failed as `failure`."""
        instance = self._context.instance
        instance.launch_run(run, self._context.create_request_context())
        for entry in instance.all_logs(run):
            event = entry.dagster_event
            if event is not None and event.is_step_failure:
                failed = event.step_failure_data
                data = failed.user_failure_data
                return {"failure": data.description if data else str(failed.error), "error": failed.error}
            if event is not None and event.is_successful_output:
                metadata = event.step_output_data.metadata
                return {name: value.value for name, value in metadata.items()}
        raise AssertionError([entry.message for entry in instance.all_logs(run)])

    def _params(
        self, job: str, ops: Mapping[str, Any], partition: str | None, assets: Sequence[dg.AssetKey]
    ) -> dict[str, Any]:
        chosen = {"assetSelection": [{"path": list(key.path)} for key in assets]} if assets else {}
        tags = [{"key": PARTITION_NAME_TAG, "value": partition}] if partition else []
        config = {"ops": {op: {"config": config} for op, config in ops.items()}} if ops else {}
        return {
            "selector": {**self._location, "jobName": job, **chosen},
            "runConfigData": config,
            "executionMetadata": {"tags": tags},
        }

    def _ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._client.post("/graphql", json={"query": query, "variables": variables})
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        assert isinstance(data, dict)
        return data


@contextlib.contextmanager
def served(instance: dg.DagsterInstance, folder: Path, recipes: Path, home: Path) -> Iterator[Webserver]:
    """The webserver of these recipes on a home; a file in `folder` makes the definitions."""
    file = folder / "location.py"
    file.write_text(
        textwrap.dedent(f"""\
        from pathlib import Path
        from slipway.definitions import build
        from slipway.recipes.load import load
        from slipway.resources.resource_sets import embedded_resources
        from slipway.resources.home import Home

        defs = build(load(Path({str(recipes)!r}), {{}}), embedded_resources(Home(Path({str(home)!r}))))
        """)
    )
    origin = LoadableTargetOrigin(python_file=str(file), working_directory=str(folder))
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(origin, location_name="slipway"))
    with WorkspaceProcessContext(instance, target) as context:
        yield Webserver(context)


@contextlib.contextmanager
def listening(server: Webserver) -> Iterator[str]:
    """The same webserver at an address, for a browser."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = uvicorn.Server(uvicorn.Config(server.app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=serving.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            serving.should_exit = True
            thread.join()
