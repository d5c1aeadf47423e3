"""Answerers: which registered versions may answer for a model. The one door of all that serves.

The truth is the log of promotions and the gate's judgements, read without MLflow. A champion may answer, and one that
was followed by another. One that was demoted, or sent back from where it served, may not until it is promoted again. Of
all others those may that could take the champion's place now: the gate let them pass, and nothing holds them back. That
counts for a small share of the traffic too, as a canary against which nothing speaks gets all of it.
"""

from pathlib import Path

from slipway.resources.mlflow.promotion import HeldBack, NotJudged, NotPromoted, allowing
from slipway.resources.mlflow.promotion_log import champion, history, withdrawals
from slipway.resources.mlflow.registry import Version


def refusal(durable: Path, version: Version, again: bool = False) -> str:
    """Why a version may not answer; empty when it may.

    `again` is for one that has answered before: neither a freeze nor a newer champion speaks against that one. Raises
    Unreadable and UndecodableRecord: where nobody knows who the champion is, nothing new may answer.
    """
    known = history(durable, version.model)
    if (ended := withdrawals(known).get(version.manifest)) is not None:
        return (
            f"version {version.number} may not answer: it is the champion no more, by {ended.by}: {ended.why}; for it "
            f"to answer again: slipway models rollback {version.model} {version.number}"
        )
    if any(each.manifest == version.manifest for each in known):
        return ""
    try:
        allowing(durable, version, champion(durable, version.model))
    except NotPromoted as error:
        if again and isinstance(error, NotJudged | HeldBack):
            return ""
        return f"{error}, and what may not be the champion may not answer"
    return ""
