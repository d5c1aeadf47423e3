"""Page links: the addresses of a training's run in MLflow and of its partition in Dagster, which link to each other.

The addresses are settings, since a process cannot know at which address browsers reach a server. Without an address,
its links are left out. All of this is shown to people, so an address has no secret.
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
    """The addresses at which browsers reach the two servers; "" if unknown."""

    dagster: str = ""
    mlflow: str = ""

    def of_run(self, run: str) -> str:
        """The page of a run in MLflow; "" if MLflow's address is unknown or there is no run yet."""
        return f"{self.mlflow.rstrip('/')}/#/runs/{run}" if self.mlflow and run else ""

    def of_experiment(self, experiment: str) -> str:
        """The page that compares the runs of an experiment; "" as for `of_run`.

        It names the kind of work, since MLflow would otherwise open its trace pages for language models.
        """
        if not self.mlflow or not experiment:
            return ""
        return f"{self.mlflow.rstrip('/')}/#/experiments/{experiment}/runs?workflowType=machine_learning"

    def of_training(self, recipe: str, training: str) -> str:
        """The page of a training's partition in Dagster; "" if Dagster's address is unknown."""
        return self._in_dagster(links.training(recipe, training))

    def of_trial(self, sweep: str, trial: str) -> str:
        """The page of a trial's partition; `sweep` is the id of its sweep, which begins with the recipe's name."""
        return self._in_dagster(links.training(sweep.rpartition("-")[0] or sweep, trial, "trial"))

    def _in_dagster(self, path: str) -> str:
        return f"{self.dagster.rstrip('/')}{path}" if self.dagster else ""


def link(client: "MlflowClient", run: str, name: str, page: str) -> None:
    """Add a link to `page`, which shows `name`, to a run's description, unless a person has written a description."""
    tags = client.get_run(run).data.tags
    if tags.get(NOTE, "") in ("", _note(name, tags.get(PAGE_TAG, ""))):
        client.set_tag(run, NOTE, _note(name, page))
    client.set_tag(run, PAGE_TAG, page)


def _note(name: str, page: str) -> str:
    return f"[{name} in Dagster]({page})"
