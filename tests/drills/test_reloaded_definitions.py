"""A person reloads the definitions while a run is in progress: what decides is the new code server, at once."""

import os

import pytest
from dagster import DagsterRunStatus

from slipway.resources.lease import HomeLease
from tests.drills import graphql
from tests.drills.instance import Instance, tags_of
from tests.drills.process_table import wait_until
from tests.drills.waiting import waiting

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

TICKS_SECONDS = 60.0
"""What the next tick of each sensor takes at most on a busy machine; the run in progress would go on for ever."""


def test_after_a_reload_sensors_decide_though_a_run_of_the_code_server_before_goes_on(instance: Instance):
    lease = HomeLease(instance.home.root)
    with waiting(instance, "while definitions are reloaded") as [first_training]:
        run = wait_until(lambda: instance.runs(tags_of(first_training)), "the job watch asks for a run")[0].run_id
        wait_until(lambda: instance.run(run).status is DagsterRunStatus.STARTED, "the run is in progress")
        before = lease.current_holder()
        assert before is not None
        graphql.reload(instance.url, "slipway")

        with waiting(instance, "wanted after the reload") as [second_training]:
            wait_until(lambda: instance.runs(tags_of(second_training)), "a sensor decides", TICKS_SECONDS)
        now = lease.current_holder()
        assert now is not None and now.pid != before.pid
        os.kill(before.pid, 0)  # the one before lives on with its run
        assert instance.run(run).status is DagsterRunStatus.STARTED
