"""The asset of the morning after: what happened in its metadata, as a page on the durable tier, and as a digest."""

from slipway.operations import daily_report
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind
from slipway.trainer.record import causes
from tests.sensors.platform import BY, Platform


def test_it_shows_what_waits_for_a_person_and_writes_the_page_and_the_digest(platform: Platform):
    store = platform.start_training("failing")
    assert store.claim(1, ("node-0",), "first start", BY)
    store.record_exit(1, "failed", "model: found 3 heads", BY, ("node-0",), kind=causes.CONFIGURATION)
    store.want("stop", "job watch", "it would fail again", by_platform=True)
    platform.apply("incidents")
    done = platform.materialize([daily_report.KEY])
    assert done.success
    [materialization] = done.asset_materializations_for_node("platform__morning")
    figures = {name: value.value for name, value in materialization.metadata.items()}
    assert figures["waiting_for_a_person"] == 1 and "recipe" in str(figures["to_be_done"])
    page = (platform.home.durable / daily_report.FILE).read_text()
    assert page.count('<article class="red">') == 1 and store.id in page
    [noted] = Outbox.of(platform.home.durable).noted()
    assert noted.notice.kind is NoticeKind.DIGEST and "model: found 3 heads" in noted.notice.body
