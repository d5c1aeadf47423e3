"""What a run shows of an error: one sentence where a person can mend it, and the stack where the code is at fault."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEventType
from dagster._utils.error import serializable_error_info_from_exc_info
from dagster_shared.error import SerializableErrorInfo

from slipway.assets.datasets.assets import build as build_by_hand
from slipway.assets.datasets.assets import dataset_assets
from slipway.assets.execution.user_errors import UserError, advised, advising, steps
from slipway.definitions import build
from slipway.recipes.load import load
from slipway.resources.errors import Unavailable
from slipway.resources.home import Home
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.tiers import Tiers
from slipway.sensors.support import wrap
from tests.embedded.slipway import RECIPES


def test_a_corpus_that_is_not_there_is_one_sentence_in_the_run(tmp_path: Path):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    recipe = load(tmp_path / "recipes", {}).datasets["small-texts"]
    home = Home(tmp_path / "home")
    tiers = Tiers(durable=str(home.durable), nvme=home.nvme)
    definitions = advised(dg.Definitions(assets=dataset_assets(recipe), resources={"tiers": tiers}))
    done = definitions.resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
    sentence = f"dataset small-texts: source.path: found nothing at {tmp_path}/recipes/corpus, expected a directory"
    assert errors_of(done) == [SerializableErrorInfo(sentence, [], None)] * 2  # of the step, and of the run


def test_a_build_by_hand_raises_its_error_and_leaves_one_sentence_in_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    recipe = load(tmp_path / "recipes", {}).datasets["small-texts"]
    home = Home(tmp_path / "home")
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(ValueError, match="found nothing at") as raised:
            build_by_hand(recipe, Tiers(durable=str(home.durable), nvme=home.nvme), instance, print)
        [run] = instance.get_run_ids()
        failed = instance.all_logs(run, of_type=DagsterEventType.STEP_FAILURE)
    errors = [event.dagster_event.step_failure_data.error for event in failed if event.dagster_event]
    assert errors == [SerializableErrorInfo(str(raised.value), [], None)]
    assert "Traceback" not in capfd.readouterr().err, "who types the command reads the sentence"


@pytest.mark.parametrize(
    "error", [ValueError("what to do"), dg.Failure("what to do"), OSError("what to do"), Unavailable("what to do")]
)
def test_an_error_for_people_is_its_sentence(error: Exception, capfd: pytest.CaptureFixture[str]):
    def fails() -> None:
        raise error

    def fails_late() -> Iterator[dg.Output[None]]:
        yield dg.Output(None)
        raise error

    for asset in (fails, fails_late):
        [step, *_] = errors_of(executed(asset))
        assert (step.message, step.stack, step.cause) == ("what to do", [], None)
    assert "in fails" in capfd.readouterr().err or isinstance(error, dg.Failure)  # who looks deeper finds the stack


def test_an_error_of_the_code_keeps_its_stack():
    def fails() -> None:
        raise KeyError("an oversight")

    [step, *_] = errors_of(executed(fails))
    assert step.cause is not None and "in fails" in "".join(step.cause.stack)


def test_a_step_gets_what_it_asked_for_and_its_result_is_taken():
    def works(context: dg.OpExecutionContext) -> dg.Output[int]:
        return dg.Output(7, metadata={"run": context.run.run_id})

    assert executed(works).output_for_node("works") == 7


def test_all_steps_of_the_platform_give_advice(tmp_path: Path):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    definitions = build(load(tmp_path / "recipes", {}), embedded_resources(Home(tmp_path / "home")))
    by_name = {op.name: op for op in steps(definitions)}
    assert {
        "small_decoder__training",
        "small_decoder_stop_training",
        "small_texts__snapshot",
        "small_decoder__sweep",
    } <= set(by_name)
    jobs = {node.name for job in definitions.get_repository_def().get_all_jobs() for node in job.graph.node_defs}
    assert jobs == set(by_name)


def test_a_tick_that_a_person_can_mend_fails_with_its_sentence_and_no_stack(tmp_path: Path):
    def fails() -> None:
        raise ValueError("platform.yaml: found nothing, expected a fleet")

    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        sensor = wrap.sensor(dg.sensor(name="a_sensor")(fails), advising)
        sentence = "platform.yaml: found nothing, expected a fleet"
        with pytest.raises(UserError) as of_sensor:
            sensor.evaluate_tick(dg.build_sensor_context(instance))
        assert info(of_sensor) == SerializableErrorInfo(sentence, [], None)
        schedule = wrap.schedule(dg.schedule(cron_schedule="@daily", target="*")(fails), advising)
        with pytest.raises(UserError) as of_schedule:
            schedule.evaluate_tick(dg.build_schedule_context(instance))
        assert info(of_schedule) == SerializableErrorInfo(sentence, [], None)


def test_every_sensor_and_schedule_of_the_platform_gives_advice(tmp_path: Path):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    definitions = build(load(tmp_path / "recipes", {}), embedded_resources(Home(tmp_path / "home")))
    ticked: list[Any] = [*(definitions.sensors or ()), *(definitions.schedules or ())]
    functions = [getattr(instigator, "_evaluation_fn", None) or instigator._execution_fn for instigator in ticked]
    evaluated = [getattr(function, "wrapped_fn", function) for function in functions]
    assert len(evaluated) > 20 and all(hasattr(function, "__wrapped__") for function in evaluated)


def test_definitions_that_cannot_load_show_one_sentence_in_the_ui(tmp_path: Path):
    """The UI is given what the code server says: asked as Dagster's own client asks it."""
    environ = {**os.environ, "SLIPWAY_RECIPES": str(tmp_path / "nothing"), "SLIPWAY_HOME": str(tmp_path / "home")}
    program = (
        "import sys; from dagster._utils.error import serializable_error_info_from_exc_info as told\n"
        "try:\n    import slipway.definitions\nexcept Exception:\n    info = told(sys.exc_info()); print(info)\n"
        "    assert not info.stack and info.cause is None and info.cls_name is None"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "nothing") in done.stdout and len(done.stdout.strip().splitlines()) == 1


def info(raised: "pytest.ExceptionInfo[UserError]") -> SerializableErrorInfo:
    """What Dagster keeps of an error."""
    return serializable_error_info_from_exc_info((raised.type, raised.value, raised.tb))


def executed(function: Callable[..., object]) -> dg.ExecuteInProcessResult:
    @dg.job
    def job() -> None:
        dg.op(function)()

    advised(dg.Definitions(jobs=[job]))
    return job.execute_in_process(raise_on_error=False)


def errors_of(done: dg.ExecuteInProcessResult) -> list[SerializableErrorInfo]:
    """The errors of a run's events, as the UI has them."""
    errors = []
    for event in done.all_events:
        if event.event_type is DagsterEventType.STEP_FAILURE:
            errors.append(event.step_failure_data.error)
        if event.event_type is DagsterEventType.RUN_FAILURE:
            errors.append(event.job_failure_data.error)
    return [error for error in errors if error is not None]
