"""Gate verdicts: the gate's decisions about a model's candidates, and which candidates wait for a person. Read-only."""

from pathlib import Path

from slipway.resources.daily_report.facts import GateVerdict
from slipway.resources.promotions import model_record, promotion, promotion_holds
from slipway.resources.promotions.promotion import Judgement
from slipway.trainer.base import listing


def of_model(durable: Path, model: str, since: float) -> tuple[list[GateVerdict], str]:
    """The verdicts since `since` or still pending, and the manifest hash of the champion, or "".

    Raises OSError, and UndecodableRecord for a damaged record.
    """
    promoted = promotion.champion(durable, model)
    champion = promoted.manifest if promoted else ""
    verdicts = []
    for manifest in listing.names_if_there(durable / "models" / model / "judgements", ".json"):
        judgement = promotion.judged(durable, model, manifest)
        if judgement is not None and manifest != champion and not judgement.rollback:
            verdict = _verdict(durable, judgement, champion)
            if verdict is not None and (verdict.at >= since or verdict.undecided or verdict.awaits_approval):
                verdicts.append(verdict)
    return verdicts, champion


def _verdict(durable: Path, judgement: Judgement, champion: str) -> GateVerdict | None:
    """The verdict; None for a candidate that passed and waits for nothing, or is being judged again."""
    folder = durable / "models" / judgement.model
    is_current = judgement.champion == champion
    history = promotion.history(durable, judgement.model)
    hold = promotion_holds.reason(folder, judgement, history) if judgement.passed and is_current else ""
    failed = () if judgement.undecided else tuple(judgement.failed)
    undecided = judgement.undecided if is_current else ""
    if not (failed or undecided or hold):
        return None
    known = model_record.read(durable, judgement.model, judgement.candidate)
    return GateVerdict(
        judgement.model,
        judgement.candidate,
        _training(str(known.state.get("folder", ""))) if known else "",
        failed,
        undecided,
        hold,
        bool(hold) and promotion_holds.awaits_approval(folder, judgement),
        judgement.by,
        judgement.at,
    )


def _training(folder: str) -> str:
    """The training of a checkpoint from its folder ``checkpoints/<training>/<commit>``; "" for any other folder."""
    parts = folder.split("/")
    return parts[-2] if len(parts) > 1 else ""
