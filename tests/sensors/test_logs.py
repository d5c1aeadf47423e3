"""Logs of a training: of all its nodes, in the log of a run that somebody asked for."""

import dagster as dg

from resources import tails
from resources.training_job import job_name
from tests.sensors.platform import Platform


def shown(platform: Platform, **wanted: object) -> tuple[bool, str]:
    """Whether the run that shows logs succeeded, and all that it said."""
    config = {"ops": {"read_logs": {"config": wanted}}}
    job = platform.repository.get_job("training_logs")
    result: dg.ExecuteInProcessResult = job.execute_in_process(
        config, instance=platform.instance, resources=platform.resources, raise_on_error=False
    )
    return result.success, "\n".join(platform.said(result.run_id))


def test_what_each_node_wrote_is_shown(platform: Platform):
    store = platform.finished()
    [node] = platform.compute.launcher().poll(job_name(store.id, 1)).nodes
    log = platform.home.jobs / job_name(store.id, 1) / "logs" / f"{node}.log"
    log.write_text("the beginning\nthe end\n")
    assert shown(platform, training=store.id)[1].count(f"{node}:\nthe beginning\nthe end\n") == 1
    assert f"{node}:\nend\n" in shown(platform, training=store.id, incarnation=1, tail_bytes=4)[1]


def test_when_the_job_is_gone_what_was_kept_of_it_is_shown(platform: Platform):
    store, launcher = platform.finished(), platform.compute.launcher()
    [node] = launcher.poll(job_name(store.id, 1)).nodes
    (platform.home.jobs / job_name(store.id, 1) / "logs" / f"{node}.log").write_text("last words\n")
    tails.keep(store, 1, launcher)
    launcher.release(job_name(store.id, 1))
    assert f"{node}:\nlast words\n" in shown(platform, training=store.id)[1]


def test_a_training_or_incarnation_that_does_not_exist_is_named(platform: Platform):
    success, said = shown(platform, training="nobody")
    assert not success
    store = platform.finished()
    assert not shown(platform, training=store.id, incarnation=7)[0]
