"""Logs of a training: of all its nodes, in the log of the run that reads them."""

import dagster as dg

from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.logs import keep_tails
from tests.sensors.platform import Platform


def show(platform: Platform, **config_of_op: object) -> dg.ExecuteInProcessResult:
    """The run that shows logs."""
    config = {"ops": {"read_logs": {"config": config_of_op}}}
    job = platform.repository.get_job("training_logs")
    result: dg.ExecuteInProcessResult = job.execute_in_process(
        config, instance=platform.instance, resources=platform.resources, raise_on_error=False
    )
    return result


def log_text(platform: Platform, **config_of_op: object) -> str:
    """All that it said."""
    return "\n".join(platform.log_lines(show(platform, **config_of_op).run_id))


def refusal(platform: Platform, **config_of_op: object) -> str:
    """Why it failed."""
    [failure] = [
        event for event in show(platform, **config_of_op).all_events if event.event_type_value == "STEP_FAILURE"
    ]
    data = failure.step_failure_data.user_failure_data
    assert data is not None
    return str(data.description)


def test_what_each_node_wrote_is_shown(platform: Platform):
    store = platform.finished()
    [node] = platform.compute.launcher().poll(job_name(store.id, 1)).nodes
    log = platform.home.jobs / job_name(store.id, 1) / "logs" / f"{node}.log"
    log.write_text("the beginning\nthe end\n")
    assert log_text(platform, training=store.id).count(f"{node}:\nthe beginning\nthe end\n") == 1
    assert f"{node}:\nend\n" in log_text(platform, training=store.id, incarnation=1, tail_bytes=4)


def test_the_tails_that_were_kept_are_shown_when_the_job_is_gone(platform: Platform):
    store, launcher = platform.finished(), platform.compute.launcher()
    [node] = launcher.poll(job_name(store.id, 1)).nodes
    (platform.home.jobs / job_name(store.id, 1) / "logs" / f"{node}.log").write_text("last words\n")
    keep_tails(store, 1, launcher)
    launcher.release(job_name(store.id, 1))
    assert f"{node}:\nlast words\n" in log_text(platform, training=store.id)


def test_a_training_or_incarnation_that_does_not_exist_is_named(platform: Platform):
    assert "found 'nobody', expected the id of a training" in refusal(platform, training="nobody")
    store = platform.finished()
    assert (
        refusal(platform, training=store.id, incarnation=7)
        == f"{store.id}: found no incarnation 7, expected one of 1 to 1"
    )
