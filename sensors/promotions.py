"""Promotions: a training that has succeeded, with all its checkpoints evaluated, is judged once.

The run registers the candidate, checks it, and makes it the champion if the checks pass. A run that broke
before the candidate was judged is requested again; a candidate that failed its checks is not. The trainings of a
recipe are judged one after the other, each against the champion that the one before it left.
"""

import dagster as dg

from assets import keys
from assets.evaluation import evaluated
from assets.models import BEATS_CHAMPION, BEATS_UNIGRAMS
from resources.compute import trainings
from resources.event_log import materialised, rejected
from resources.tiers import Tiers
from resources.training_store import TrainingStore
from sensors import checkpoint_arrivals, runs

DUTY = "promotion"
PROMOTES_TAG, JUDGES_TAG = "slipway/promotes", "slipway/judges"


@dg.sensor(
    name="promotions",
    asset_selection='key:"*/candidate" or key:"*/champion"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Judges each finished training: candidate, checks, champion.",
)
def promotions(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
    known = trainings(tiers)
    evaluating = set(known.opened(checkpoint_arrivals.DUTY))
    requests: dict[str, dg.RunRequest] = {}
    for id in known.opened(DUTY):
        store = known.store(id)
        ended = store.exit()
        if ended is None or id in evaluating:
            continue
        nothing_to_judge = ended.outcome != "succeeded" or not evaluated(store)
        if nothing_to_judge or _judged(context.instance, store):
            known.close(id, DUTY)
            continue
        recipe = store.specification().recipe
        judging = recipe in requests or runs.unfinished(context.instance, {JUDGES_TAG: recipe})
        if not judging and runs.may_request(context.instance, {PROMOTES_TAG: id}):
            assets = [keys.key(recipe, "candidate"), keys.key(recipe, "champion")]
            requests[recipe] = runs.request(assets, {PROMOTES_TAG: id, JUDGES_TAG: recipe}, id)
    return dg.SensorResult(run_requests=list(requests.values()))


def _judged(instance: dg.DagsterInstance, store: TrainingStore) -> bool:
    """Whether its candidate has become the champion or failed its checks: a run may break anywhere before."""
    if runs.unfinished(instance, {PROMOTES_TAG: store.id}):
        return False
    recipe = store.specification().recipe
    candidate, checks = keys.key(recipe, "candidate"), (BEATS_UNIGRAMS, BEATS_CHAMPION)
    return materialised(instance, keys.key(recipe, "champion"), store.id) or rejected(
        instance, candidate, checks, store.id
    )
