"""The daily report: one page over the last day, as an asset that a schedule makes each morning, and as a file."""

import time

import dagster as dg
from pydantic import Field

from slipway.assets.execution import pods
from slipway.resources.daily_report import page, reading, text
from slipway.resources.daily_report import report as daily_report
from slipway.resources.notify.notices import Notice
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind
from slipway.resources.tiers import Tiers
from slipway.trainer.base.units import HOUR

KEY = dg.AssetKey(["platform", "morning"])
FILE = "morning/page.html"
"""Below the durable tier."""


class MorningConfig(dg.Config):
    """Since when."""

    hours: float = Field(default=24.0, gt=0, description="So many hours are reported, and what waits now")


@dg.asset(
    key=KEY,
    group_name="platform",
    kinds={"incident"},
    op_tags=pods.tags("morning"),
    owners=["team:platform"],
    description=(
        "What happened since yesterday on one page: incidents, damaged checkpoints, faults of tiers, rejections, and "
        "what waits for a person."
    ),
)
def morning_page(config: MorningConfig, tiers: Tiers) -> dg.MaterializeResult[None]:
    now = time.time()
    durable = tiers.durable_path
    report = daily_report.report(reading.read_facts(durable, now - config.hours * HOUR, now))
    page.write(report, durable / FILE)
    notice = Notice(f"digest.{now:.0f}", NoticeKind.DIGEST, report.sentence, text.digest(report), now)
    outbox = Outbox.of(durable)
    outbox.note(notice)  # it is sent where the settings ask for it
    outbox.prune(now)
    return dg.MaterializeResult(
        metadata={
            "summary": report.sentence,
            "to_be_done": dg.MetadataValue.md(text.todo_markdown(report.waiting)),
            "waiting_for_a_person": len(report.waiting),
            "incidents": report.incidents,
            "seconds_lost": round(report.seconds_lost, 1),
            "steps_lost": report.steps_lost,
            "page": dg.MetadataValue.md(text.markdown(report)),
            "file": dg.MetadataValue.path(str(durable / FILE)),
        }
    )


job = dg.define_asset_job(
    "morning_after", dg.AssetSelection.assets(KEY), description="What happened since yesterday, on one page."
)
schedule = dg.ScheduleDefinition(
    name="morning_after_schedule",
    cron_schedule="0 6 * * *",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each morning at 6:00 UTC.",
)
