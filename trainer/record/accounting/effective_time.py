"""Effective time: the share of a training's time that was effective, by the published definitions.

Meta (Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv:2410.21680,
section II): ETTR is the productive runtime of a job run over its available wall clock, which is the time in which it is
scheduled or could be; retraining after an interruption and the initialisation of a restart are not productive.
ByteDance (ByteRobust, arXiv:2509.16293, section 2): ETTR is the productive training time over the wall clock of the
job; steps alone are productive here. Goodput is Google's (ml-goodput): the time of steps that were kept, without their
wait for data, over all time that elapsed.
"""

from dataclasses import dataclass

from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account


@dataclass(frozen=True)
class EffectiveTime:
    """Shares of time, from 0 to 1; None if no time has passed or nothing is known."""

    ettr_meta: float | None
    """Steps, validations and checkpoint stalls that are not repeated, of all time in which no person had stopped it."""
    ettr_bytedance: float | None
    """Steps that are not repeated, of the time since the first process began in which no person had stopped it."""
    ettr_window: float | None
    """The same in the last hour."""
    goodput: float | None
    """Kept steps without their wait for data; of all time, the stopped time too."""
    mfu: float | None
    """The mean MFU of all time since the first process began: lost time counts as 0."""
    mfu_of_steps: float | None
    """The mean MFU of the steps that are not repeated."""


def effective_time(account: Account, window_seconds: float = 3600.0) -> EffectiveTime:
    """The figures of an account."""
    seconds = account.seconds
    stopped = seconds.get(buckets.STOPPED, 0.0)
    kept_seconds = _sum(seconds, buckets.PRODUCTIVE)
    steps = _sum(seconds, buckets.STEPPING)
    job = account.end - account.started - stopped
    recent = spent_since(account, max(account.started, account.end - window_seconds))
    done = sum(stretch.mfu_seconds for stretch in account.stretches)
    over = sum(stretch.mfu_over for stretch in account.stretches)
    return EffectiveTime(
        ettr_meta=_share(kept_seconds, account.wall - stopped),
        ettr_bytedance=_share(steps, job),
        ettr_window=_share(_sum(recent, buckets.STEPPING), sum(recent.values()) - recent.get(buckets.STOPPED, 0.0)),
        goodput=_share(steps - seconds.get(buckets.DATA, 0.0), account.wall),
        mfu=_share(done, job) if over else None,
        mfu_of_steps=_share(done, over),
    )


def spent_since(account: Account, begin: float) -> dict[str, float]:
    """Seconds by bucket from a moment on; a stretch around it is divided."""
    sums: dict[str, float] = {}
    for stretch in account.stretches:
        share = min(1.0, (stretch.end - begin) / (stretch.end - stretch.begin))
        for bucket, spent in stretch.seconds.items() if share > 0 else ():
            sums[bucket] = sums.get(bucket, 0.0) + spent * share
    return sums


def _sum(seconds: dict[str, float], names: tuple[str, ...]) -> float:
    return sum(seconds.get(name, 0.0) for name in names)


def _share(part: float, total: float) -> float | None:
    return max(0.0, min(1.0, part / total)) if total > 0 else None
