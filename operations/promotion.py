"""Promotion in the UI: jobs of each model that promote, roll back, demote, approve, refuse, freeze or thaw a version.

Each of them is the operation that the command line has, at the same door and with the same record.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.measurement import in_a_run
from slipway.assets.promotion.gate import Gate
from slipway.assets.serving import after_demotion
from slipway.operations.job_config import ReasonConfig
from slipway.recipes.load import Recipes
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.registry import CANDIDATE, Version
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions import promotion_holds
from slipway.resources.promotions.promotion import Promotion
from slipway.resources.run_kinds import RunKind
from slipway.resources.tiers import Tiers
from slipway.serving.records import ServingRecords
from slipway.trainer.record.files import Unreadable


class PromoteConfig(ReasonConfig):
    """Which version becomes champion."""

    version: int = Field(default=0, ge=0, description="The version; 0 for the candidate, which was registered last")


class RollbackConfig(ReasonConfig):
    """Which version becomes champion again."""

    version: int = Field(default=0, ge=0, description="The version; 0 for the one that was the champion before")
    although_lost: bool = Field(
        default=False, description="Go on without the records of promotions that are lost for good"
    )


class JudgeConfig(ReasonConfig):
    """Which version a person has looked at: no other one may take its place before the launch."""

    version: int = Field(ge=1, description="The version")


ConfigT = TypeVar("ConfigT", bound=ReasonConfig)


def promotion_jobs(recipes: Recipes) -> list[dg.JobDefinition]:
    """The jobs of all models of these recipes: one for each model and verb, with its own configuration."""
    models = sorted({recipe.registered_model for recipe in recipes.trainings.values()})
    return [job for model in models for job in _jobs_of(recipes, model)]


def _jobs_of(recipes: Recipes, model: str) -> list[dg.JobDefinition]:
    return [
        _job(
            recipes,
            model,
            "promote",
            PromoteConfig,
            _promote,
            f"Makes a version of {model} champion, if it passes.",
        ),
        _job(
            recipes, model, "rollback", RollbackConfig, _rollback, f"Makes a former champion of {model} champion again."
        ),
        _job(recipes, model, "demote", ReasonConfig, _demote, f"Lets {model} have no champion."),
        _job(recipes, model, "approve", JudgeConfig, _approve, f"Lets a version of {model} be promoted."),
        _job(recipes, model, "refuse", JudgeConfig, _refuse, f"Does not let a version of {model} be promoted."),
        _job(
            recipes,
            model,
            "freeze",
            ReasonConfig,
            _freeze,
            f"Lets no version of {model} be promoted until it is thawed.",
        ),
        _job(recipes, model, "thaw", ReasonConfig, _thaw, f"Lets versions of {model} be promoted again."),
    ]


def _job(
    recipes: Recipes,
    model: str,
    verb: str,
    schema: type[ConfigT],
    do: Callable[[Gate, ConfigT, str], str],
    description: str,
) -> dg.JobDefinition:
    """The job of one verb; `do` puts it on record, by a person, and returns what was done."""
    lane = keys.lane(model)
    offered: Any = schema

    @dg.op(name=f"{lane}_{verb}_model", tags=pods.tags("model", kind=RunKind.VERB))
    def operate(
        context: dg.OpExecutionContext,
        config: offered,
        tiers: Tiers,
        compute: Compute,
        tracking: Tracking,
    ) -> dg.Output[None]:
        """Raises Failure with the reason where it is refused."""
        measuring = in_a_run(context, tiers, compute)  # type: ignore[arg-type]
        gate = Gate(measuring, tracking, model, recipes.trainings, recipes.suites)
        try:
            done = do(gate, config, identity.of_run(context.run))
        except (ValueError, Unreadable) as error:
            raise dg.Failure(str(error)) from None
        context.log.info(done)
        return dg.Output(None, metadata={"model": model, "result": done, "why": config.why})

    @dg.job(name=f"{lane}_{verb}", description=description)
    def job() -> None:
        operate()

    return job


def previous(gate: Gate) -> Version:
    """The version that was the champion before. Raises ValueError where there is none."""
    champion = gate.promotions.champion()
    before = next(
        (
            promotion
            for promotion in reversed(gate.promotions.history())
            if champion and promotion.version == champion.before
        ),
        None,
    )
    version = gate.registry.find(gate.model, before.manifest) if before else None
    if version is None:
        raise ValueError(f"model {gate.model}: it has no former champion")
    return version


def _version(gate: Gate, number: int) -> Version:
    """The version of this number, the candidate for 0. Raises ValueError where there is none."""
    version = gate.registry.version(gate.model, number) if number else gate.registry.aliased(gate.model, CANDIDATE)
    if version is None and not number:
        raise ValueError(f"model {gate.model}: it has no candidate yet: none of its checkpoints is registered")
    if version is None:
        there = sorted(
            int(registered.number) for registered in gate.registry.versions() if registered.model == gate.model
        )
        expected = f"expected one of {', '.join(map(str, there))}" if there else "and no version is registered"
        raise ValueError(f"model {gate.model}: field version: found {number}, {expected}")
    return version


def _promote(gate: Gate, config: PromoteConfig, actor: str) -> str:
    return _sentence(gate.promote(_version(gate, config.version), actor, config.why))


def _rollback(gate: Gate, config: RollbackConfig, actor: str) -> str:
    if config.although_lost and not config.version:
        raise ValueError(f"model {gate.model}: expected a version, as nobody knows which one was the champion before")
    version = _version(gate, config.version) if config.version else previous(gate)
    if config.although_lost:
        gate.promotions.acknowledge_lost(actor, config.why)
    return _sentence(gate.rollback(version, actor, config.why))


def _demote(gate: Gate, config: ReasonConfig, actor: str) -> str:
    champion = gate.promotions.champion()
    demotion = gate.promotions.demote(actor, config.why)
    traffic = after_demotion(ServingRecords(gate.tiers.durable_path), gate.model, champion)
    return f"version {demotion.before} is the champion no more{traffic}"


def _approve(gate: Gate, config: JudgeConfig, actor: str) -> str:
    version = _version(gate, config.version)
    gate.promotions.approve(version, promotion_holds.Approval(True, actor, config.why))
    return f"version {version.number} is approved"


def _refuse(gate: Gate, config: JudgeConfig, actor: str) -> str:
    version = _version(gate, config.version)
    gate.promotions.approve(version, promotion_holds.Approval(False, actor, config.why))
    return f"version {version.number} is refused"


def _freeze(gate: Gate, config: ReasonConfig, actor: str) -> str:
    freeze = promotion_holds.set_freeze(gate.promotions.folder, actor, config.why)
    return f"frozen by {freeze.by}: {freeze.why}"


def _thaw(gate: Gate, config: ReasonConfig, actor: str) -> str:
    gate.promotions.thaw(actor)
    return "it may be promoted again"


def _sentence(promotion: Promotion) -> str:
    after = f", after version {promotion.before}" if promotion.before else ""
    return f"version {promotion.version} became champion{after}"
