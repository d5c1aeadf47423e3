"""Pages: where people open a training's run in MLflow, and its partition in Dagster; each of the two names the other.

The addresses are settings, since nothing tells a process where browsers reach a server. Without one, that link is left
out. Everything here is shown: an address has no secret in it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipway.resources import links

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE = "mlflow.note.content"
"""MLflow's own tag of a run's description, which its page shows as Markdown."""
PAGE_TAG = "slipway.page"
"""The address of the partition in Dagster."""


@dataclass(frozen=True)
class Pages:
    """Where browsers reach the two servers; empty where that is not known."""

    dagster: str = ""
    mlflow: str = ""

    def of_run(self, run: str) -> str:
        """The page of a run in MLflow; empty where its address is not known, or there is no run yet."""
        return f"{self.mlflow.rstrip('/')}/#/runs/{run}" if self.mlflow and run else ""

    def of_experiment(self, experiment: str) -> str:
        """The runs of an experiment beside one another; empty as for `of_run`.

        The kind of work is named, as MLflow would otherwise open its pages for language models, on traces.
        """
        if not self.mlflow or not experiment:
            return ""
        return f"{self.mlflow.rstrip('/')}/#/experiments/{experiment}/runs?workflowType=machine_learning"

    def of_training(self, recipe: str, training: str) -> str:
        """The page of a training's partition in Dagster; empty where Dagster's address is not known."""
        return self._in_dagster(links.training(recipe, training))

    def of_trial(self, sweep: str, trial: str) -> str:
        """The page of a trial's partition; `sweep` is the id of its sweep, which begins with the recipe's name."""
        return self._in_dagster(links.training(sweep.rpartition("-")[0] or sweep, trial, "trial"))

    def _in_dagster(self, path: str) -> str:
        return f"{self.dagster.rstrip('/')}{path}" if self.dagster else ""


def link(client: "MlflowClient", run: str, name: str, page: str) -> None:
    """Let the page of a run link to `page`, where `name` is shown; what a person wrote into its description stays."""
    tags = client.get_run(run).data.tags
    if (note := tags.get(NOTE, "")) == "" or note == _note(name, tags.get(PAGE_TAG, "")):
        client.set_tag(run, NOTE, _note(name, page))
    client.set_tag(run, PAGE_TAG, page)


def _note(name: str, page: str) -> str:
    return f"[{name} in Dagster]({page})"
