"""Re-sealing: seals all encrypted checkpoints anew with the newest key, where the keys are: in a run.

It is started by hand after a new key was written above the old one. A run that was killed has sealed some, and the next
one seals the rest.
"""

from typing import Any

import dagster as dg

from slipway.assets.execution import pods
from slipway.operations import references
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.checkpoints import reseal_all, resealing_sentences


@dg.op(
    description="Wraps the keys of all encrypted checkpoints with the newest key, and says what needs an older one.",
    tags=pods.tags("checkpoint_retention"),
)
def reseal_checkpoints(context: dg.OpExecutionContext, tiers: Tiers) -> dg.Output[None]:
    """Raises Failure, with the copies, while something needs an older key or could not be read."""
    stores = (store for root in references.training_collections(tiers) for store in root.stores())
    done = reseal_all(stores, tiers.shared())
    lines = resealing_sentences(done)
    for line in lines:
        context.log.info(line)
    figures: dict[str, Any] = {
        "sealed": len(done.sealed),
        "failed": len(done.failed),
        "need_another_key": dict(done.needed),
    }
    if done.needed or done.failed:
        raise dg.Failure("; ".join(lines[len(done.sealed) :]), metadata=figures)
    return dg.Output(None, metadata=figures)


@dg.job(name="checkpoint_reseal", description="Seals encrypted checkpoints anew, so that an older key can go.")
def job() -> None:
    reseal_checkpoints()
