"""Promotion in the UI: one job that promotes, rolls back, demotes, approves, freezes or thaws, by typed configuration.

Each of them is the operation that the command line has, at the same door and with the same record.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from assets.execution import pods
from assets.gate import Gate
from assets.measuring import in_a_run
from recipes.load import Recipes
from resources.compute.protocol import Compute
from resources.mlflow import holding, identity
from resources.mlflow.promotion import Promotion
from resources.mlflow.registry import Version
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers


class Operation(Enum):
    """What is done to a model."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"
    DEMOTE = "demote"
    APPROVE = "approve"
    REFUSE = "refuse"
    FREEZE = "freeze"
    THAW = "thaw"


class ModelOperation(dg.Config):
    """One operation on one model; the launchpad offers the models of the recipes."""

    model: Enum = Field(description="The registered model")
    operation: Operation = Field(description="What is done to it")
    version: int | None = Field(default=None, description="The version; a rollback without one takes the one before")
    why: str = Field(description="The reason, kept on record")


def promotion_jobs(recipes: Recipes) -> list[dg.JobDefinition]:
    """The job for all models of these recipes; none where no recipe makes a model."""
    models = sorted({recipe.registered_model for recipe in recipes.trainings.values()})
    return [_promotion_job(recipes, models)] if models else []


def _promotion_job(recipes: Recipes, models: list[str]) -> dg.JobDefinition:
    offered: Any = _offering(models)

    @dg.op(tags=pods.tags("model"))
    def operate(
        context: dg.OpExecutionContext,
        config: offered,
        tiers: Tiers,
        compute: Compute,
        tracking: Tracking,
    ) -> dg.Output[None]:
        """Raises Failure with the reason where the operation is refused."""
        assert isinstance(config, ModelOperation)
        measuring, model = in_a_run(context, tiers, compute), str(config.model.value)  # type: ignore[arg-type]
        gate = Gate(measuring, tracking, model, recipes.trainings, recipes.suites)
        try:
            told = _DONE[config.operation](gate, config, identity.of_run(context.run))
        except ValueError as error:
            raise dg.Failure(str(error)) from None
        context.log.info(told)
        return dg.Output(None, metadata={"model": model, "told": told, "why": config.why})

    @dg.job(name="model_operation", description="Promotes, rolls back, demotes, approves, freezes or thaws a model.")
    def job() -> None:
        operate()

    return job


def _offering(models: list[str]) -> type[ModelOperation]:
    """The configuration whose `model` is one of these; Dagster takes two types of one name for the same."""
    chosen = Enum(" or ".join(models), {name: name for name in models})  # type: ignore[misc]
    return create_model(
        ModelOperation.__name__, __base__=ModelOperation, model=(chosen, Field(description="The registered model"))
    )


def previous(gate: Gate) -> Version:
    """The version that was the champion before. Raises ValueError where there is none."""
    held = gate.promotions.champion()
    before = next((each for each in reversed(gate.promotions.history()) if held and each.version == held.before), None)
    found = gate.registry.find(gate.model, before.manifest) if before else None
    if found is None:
        raise ValueError(f"model {gate.model}: it has no former champion")
    return found


def _version(gate: Gate, config: ModelOperation) -> Version:
    found = gate.registry.version(gate.model, config.version) if config.version else None
    if found is None:
        raise ValueError(f"model {gate.model}: field version: found {config.version}, expected one of its versions")
    return found


def _promote(gate: Gate, config: ModelOperation, by: str) -> str:
    return _told(gate.promote(_version(gate, config), by, config.why))


def _rollback(gate: Gate, config: ModelOperation, by: str) -> str:
    version = _version(gate, config) if config.version else previous(gate)
    return _told(gate.rollback(version, by, config.why))


def _demote(gate: Gate, config: ModelOperation, by: str) -> str:
    return f"version {gate.promotions.demote(by, config.why).before} is the champion no more"


def _approve(gate: Gate, config: ModelOperation, by: str) -> str:
    approved = config.operation is Operation.APPROVE
    said = holding.Approval(approved, by, config.why)
    gate.promotions.approve(_version(gate, config), said)
    return f"version {config.version} is {'approved' if approved else 'refused'}"


def _freeze(gate: Gate, config: ModelOperation, by: str) -> str:
    held = holding.set_freeze(gate.promotions.folder, by, config.why)
    return f"frozen by {held.by}: {held.why}"


def _thaw(gate: Gate, config: ModelOperation, by: str) -> str:
    gate.promotions.thaw(by)
    return "it may be promoted again"


_DONE: dict[Operation, Callable[[Gate, ModelOperation, str], str]] = {
    Operation.PROMOTE: _promote,
    Operation.ROLLBACK: _rollback,
    Operation.DEMOTE: _demote,
    Operation.APPROVE: _approve,
    Operation.REFUSE: _approve,
    Operation.FREEZE: _freeze,
    Operation.THAW: _thaw,
}


def _told(made: Promotion) -> str:
    return f"version {made.version} became champion{f', after version {made.before}' if made.before else ''}"
