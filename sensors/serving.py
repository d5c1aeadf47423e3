"""Serving: brings what answers for each model to what is wanted, and shows it.

Should be: a model whose champion is to be followed has its newest champion wanted; what is wanted has a server.
Is: the wishes on record, the promotions, whether the server runs, and what it says of itself.
Follows: a run of the served asset for a champion that was not wanted yet; a server that is started again; an
observation of the asset when something else answers, and once a day of what it is asked. A champion that came back from
its canary is champion no more: the one before it is again, with the reason on record, until a person promotes the first
one again. A version that was demoted stops answering, whoever had asked for it.
"""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from slipway.assets.serving import (
    SERVES_TAG,
    answering_observation,
    asked_observation,
    asked_of,
    champion_of,
    served_key,
    served_models,
)
from slipway.assets.subjects import Subject
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.promotions.promotion import send_back
from slipway.resources.promotions.promotion_log import history, withdrawals
from slipway.resources.serving import wishes
from slipway.resources.tiers import Tiers
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.serving.records import Answering, ServingRecords
from slipway.serving.request_statistics import today

NAME = "serving"
BY = f"sensor {NAME}"
_last_answering: dict[tuple[Path, str], Answering] = {}
"""What was last shown of each model; it is shown again by a new process."""
_last_drift_day: dict[tuple[Path, str], str] = {}
"""The day on which it was last shown what each model is asked."""


def serving(recipes: Sequence[ModelRecipe]) -> dg.SensorDefinition:
    """The sensor over the registered models of all recipes."""
    models = served_models(recipes)

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/served"',
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the champions answer that are to be served, and shows who answers.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick = Tick(context, NAME)
        records = ServingRecords(tiers.durable_path)
        all_models = records.models()
        known = [model for model in all_models if model in models]
        tick.for_each(
            all_models, _withdrawn_subject, lambda model: _withdraw(tick, tiers, records, model, model in models)
        )
        tick.for_each(known, _subject, lambda model: _follow(tick, tiers, records, model))
        if all_models:
            tick.visit(Subject("the server"), lambda: compute.serving(tiers).ensure(records))
        tick.for_each(known, _shown_subject, lambda model: _show(tick, tiers, records, model))
        return tick.result()

    return sensor


def _subject(model: str) -> Subject:
    return Subject(f"model {model}", served_key(model))


def _withdrawn_subject(model: str) -> Subject:
    return Subject(f"what may answer for {model}", served_key(model))


def _shown_subject(model: str) -> Subject:
    return Subject(f"what answers for {model}", served_key(model))


def _withdraw(tick: Tick, tiers: Tiers, records: ServingRecords, model: str, is_shown: bool) -> None:
    """Let no version answer that was the champion and was demoted."""
    state = records.state(model)
    gone = withdrawals(history(tiers.durable_path, model))
    for version in (state.settled, state.coming):
        if version is not None and (ended := gone.get(version.checkpoint)) is not None:
            why = f"version {version.number} is the champion no more, by {ended.by}: {ended.why}"
            wishes.withdraw(records, model, gone, BY, why)
            if is_shown:
                observation = dg.AssetObservation(served_key(model), description=why, metadata={"withdrawn": why})
                tick.events.append(observation)
            return


def _follow(tick: Tick, tiers: Tiers, records: ServingRecords, model: str) -> None:
    """Request that a newer champion be served, where champions are followed; one that came back is none any more."""
    state = records.state(model)
    if state.desired is None or not state.desired.follows:
        return
    champion = champion_of(tiers, model)
    if champion is None:
        return
    tried = state.desired.version.checkpoint if state.desired.version else ""
    came_back = state.verdict if state.verdict is not None and state.verdict.outcome == "back" else None
    if champion.manifest == tried and came_back is None:
        return
    if champion.manifest == tried and came_back is not None:
        evidence = {"wish": state.number, "checkpoint": tried, "verdict": came_back.why, **came_back.figures}
        why = f"version {champion.number} came back from its canary: {came_back.why}"
        if send_back(tiers.durable_path, model, tried, evidence, BY, why):
            tick.events.append(_sent_back(model, why))
            return  # the next tick serves what is champion now, unless that answers already
    if state.settled is not None and champion.manifest == state.settled.checkpoint:
        return
    value = f"{model}:{champion.manifest}:{len(history(tiers.durable_path, model))}"
    if NewestRuns(tick.instance, SERVES_TAG, [value]).may_request(value):
        tick.request([served_key(model)], {SERVES_TAG: value})


def _sent_back(model: str, why: str) -> dg.AssetObservation:
    """The event that says that a champion is none any more."""
    description = f"{why}; to try it again: slipway models promote {model} VERSION"
    return dg.AssetObservation(served_key(model), description=description, metadata={"sent_back": description})


def _show(tick: Tick, tiers: Tiers, records: ServingRecords, model: str) -> None:
    """Observe what answers, when that is something else than before, and once a day what it is asked."""
    answering = records.answering(model)
    if answering is not None and _last_answering.get((records.folder, model)) != answering:
        tick.events.append(answering_observation(model, answering, records.state(model)))
        _last_answering[records.folder, model] = answering
    day = today()
    if _last_drift_day.get((records.folder, model)) != day and (drift := asked_of(tiers, model)) is not None:
        tick.events.append(asked_observation(model, drift, day))
        _last_drift_day[records.folder, model] = day
