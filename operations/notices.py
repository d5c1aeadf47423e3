"""Notices in the UI: a job that sends a message to every address, as `slipway notify test` does."""

import dagster as dg

from slipway.assets.execution import pods
from slipway.resources import identity
from slipway.resources.notify import endpoints
from slipway.resources.notify.settings import NotificationSettings

NOBODY = "notifications: found no settings, expected those of docs/notifications.md: whom to tell"


def job(settings: NotificationSettings | None) -> dg.JobDefinition:
    """The job, which fails with one sentence where there is no address, or one did not take the message."""

    @dg.op(name="send_a_test", description="Sends a message to every address.", tags=pods.tags("notices"))
    def send(context: dg.OpExecutionContext) -> dg.Output[None]:
        if settings is None:
            raise dg.Failure(NOBODY)
        try:
            outcomes = dict(endpoints.trial_outcomes(settings, identity.of_run(context.run)))
        except (ValueError, OSError) as error:
            raise dg.Failure(str(error)) from None
        if problem := endpoints.trial_problem(outcomes):
            raise dg.Failure(problem)
        return dg.Output(None, metadata=outcomes)

    @dg.job(name="notifications_test", description="Sends a message to every address that gets notifications.")
    def test() -> None:
        send()

    return test
