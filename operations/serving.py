"""Serving from the UI: a job a registered model, which serves a version, goes back to the one before, or stops."""

from collections.abc import Sequence
from typing import Literal

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.serving import Serving, champion_of, named, served_models
from slipway.operations.job_config import ReasonConfig
from slipway.recipes.training import ModelRecipe
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.run_kinds import RunKind
from slipway.resources.serving import wishes
from slipway.resources.tiers import Tiers
from slipway.serving.records import SwitchPolicy
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.record.files import Unreadable


class ServeConfig(ReasonConfig):
    """What is wanted of a model."""

    want: Literal["serve", "back", "stop"] = Field(
        default="serve", description="serve a version, go back to the one that answered before, or stop"
    )
    version: int = Field(default=0, description="The version to serve; 0 for the champion, and for those that follow")
    percent: float = Field(default=100.0, description="Of new requests, until it is compared with the one before")


def serve_job(model: str) -> dg.JobDefinition:
    """The job of one registered model."""
    lane = keys.lane(model)

    @dg.op(name=f"{lane}_serve_model", tags=pods.tags("served", kind=RunKind.VERB))
    def serve_model(
        context: dg.OpExecutionContext, config: ServeConfig, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure with the reason where it cannot be done."""
        serving = Serving(tiers, compute, lambda message: context.log.info(message))
        actor = identity.of_run(context.run)
        try:
            wishes.check(config.want, config.version, config.percent)
            if config.want == "stop":
                state = serving.stop(model, actor, config.why)
            elif config.want == "back":
                state = serving.back(model, actor, config.why)
            else:
                registry = Registry(tracking, tiers.durable_path)
                version = registry.version(model, config.version) if config.version else champion_of(tiers, model)
                if version is None:
                    raise ValueError(f"there is no {f'version {config.version}' if config.version else 'champion'}")
                policy = SwitchPolicy(share=config.percent / 100)
                state = serving.serve(version, policy, not config.version, actor, config.why)
        except (ValueError, DamagedCheckpoint, Unreadable) as error:
            raise dg.Failure(named(model, error)) from None
        return dg.Output(None, metadata={"wish": state.number, "want": config.want})

    @dg.job(name=f"{lane}_serve", description=f"Serves a version of {model}, goes back to the one before, or stops.")
    def job() -> None:
        serve_model()

    return job


def serve_jobs(recipes: Sequence[ModelRecipe]) -> list[dg.JobDefinition]:
    """One for each registered model that can be asked."""
    return [serve_job(model) for model in served_models(recipes)]
