"""Notices in the UI: a job that sends a message to every address, as `slipway notify test` does."""

import dagster as dg

from assets.execution import pods
from resources.mlflow import identity
from resources.notify import trial
from resources.notify.settings import NotificationSettings

NOBODY = "notifications: found no settings, expected those of docs/notifications.md: whom to tell"


def job(settings: NotificationSettings | None) -> dg.JobDefinition:
    """The job, which fails with one sentence where nobody is told, or an address did not take the message."""

    @dg.op(name="send_a_test", description="Sends a message to every address.", tags=pods.tags("notices"))
    def send(context: dg.OpExecutionContext) -> dg.Output[None]:
        if settings is None:
            raise dg.Failure(NOBODY)
        try:
            told = dict(trial.outcomes(settings, identity.of_run(context.run)))
        except (ValueError, OSError) as error:
            raise dg.Failure(str(error)) from None
        if problem := trial.problem(told):
            raise dg.Failure(problem)
        return dg.Output(None, metadata=told)

    @dg.job(name="notifications_test", description="Sends a message to every address that is told what happens.")
    def test() -> None:
        send()

    return test
