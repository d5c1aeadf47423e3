"""Sending back: a champion that failed where it served is champion no more.

The log of promotions alone is written, by compare-and-set; MLflow's alias follows it (`slipway.sensors.promotions`).
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipway.resources.mlflow.promotion_log import SENT_BACK, Judgement, Promotion, add, history, next_number
from slipway.resources.mlflow.registry import one_writer


def send_back(durable: Path, model: str, manifest: str, evidence: Mapping[str, Any], by: str, why: str) -> bool:
    """Take the championship from a checkpoint; False where that was not to be done: another one is the champion.

    The champion before it is the champion again, or none is where there was none before. `evidence` names what was
    seen; on the same evidence nothing is sent back twice, so that a person may promote the checkpoint again. Raises
    Unavailable while another process works on the model.
    """
    with one_writer(durable, model):
        number, known = next_number(durable, model), history(durable, model)
        if not known or known[-1].manifest != manifest:
            return False
        if any(each.judgement and dict(each.judgement.figures) == dict(evidence) for each in known):
            return False
        held = known[-1]
        before = next((each for each in reversed(known) if each.version and each.version == held.before), None)
        back = before.manifest if before else ""
        judged = Judgement(model, back, manifest, {SENT_BACK: True}, by, figures=dict(evidence), rollback=True)
        if before is None:
            made = Promotion(model, "", "", held.version, "", {}, by, why, time.time(), judged)
        else:
            made = replace(before, before=held.version, by=by, why=why, at=time.time(), judgement=judged)
        return add(durable, number, made)
