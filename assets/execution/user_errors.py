"""User errors: an error that a person can correct appears in Dagster as one sentence, without the framework's stack.

This covers the steps of runs, the ticks of sensors and schedules, and the loading of definitions. Dagster normally
shows an error with the stacks of the step and of its callers, but an error from another process can say what to show,
and these errors use that. The stack is not lost: it goes to the process's stderr.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster._core.errors import DagsterUserCodeExecutionError, DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo

from slipway.resources.errors import is_for_people, sentence


class UserError(dg.Failure, DagsterUserCodeProcessError):
    """A failure that Dagster shows as its description only."""

    def __init__(self, failure: dg.Failure, error: Exception | None = None) -> None:
        self.error = error or failure
        """The original error, for callers that execute steps in their own process and raise it again."""
        Exception.__init__(self, failure.description)  # the initialisers of the two bases are incompatible
        self.description = failure.description
        self.metadata = failure.metadata
        self.allow_retries = failure.allow_retries
        # Dagster shows this instead of a stack; see serializable_error_info_from_exc_info.
        error_info = SerializableErrorInfo(failure.description or "it failed", stack=[], cls_name=None)
        self.user_code_process_error_infos = [error_info]


def advised(definitions: dg.Definitions, stacks: bool = True) -> dg.Definitions:
    """The same definitions with steps that raise UserError for errors that a person can correct.

    `stacks` says whether to write the stacks to stderr.
    """
    for op in steps(definitions):
        compute = op.compute_fn
        assert isinstance(compute, DecoratedOpFunction), op.name
        if not hasattr(compute.decorated_fn, _MARK):  # one step may occur in several definitions
            op._compute_fn = type(compute)(advising(compute.decorated_fn, stacks))
    return definitions


def steps(definitions: dg.Definitions) -> Iterator[dg.OpDefinition]:
    """All steps of the definitions: of assets, of checks and of jobs."""
    for asset in [*(definitions.assets or ()), *(definitions.asset_checks or ())]:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable:
            yield from asset.node_def.iterate_op_defs()
    for job in definitions.jobs or ():
        if isinstance(job, dg.JobDefinition):
            yield from job.graph.iterate_op_defs()


_MARK = "_slipway_advises"


def advising(function: Callable[..., Any], stacks: bool = True) -> Callable[..., Any]:
    """The same function, which raises UserError for errors that a person can correct."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Iterator[Any]:
            with as_advice(stacks):
                yield from function(*arguments, **named)

    else:

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with as_advice(stacks):
                return function(*arguments, **named)

    setattr(wrapped, _MARK, True)
    return wrapped


@contextmanager
def as_advice(stacks: bool = True) -> Iterator[None]:
    """Raise UserError for errors that a person can correct. With `stacks`, their stacks go to stderr."""
    try:
        yield
    except UserError:
        raise
    except dg.Failure as failure:
        raise UserError(failure) from None
    except Exception as error:
        cause = error.user_exception if isinstance(error, DagsterUserCodeExecutionError) else error  # a schedule's
        if not is_for_people(cause):
            raise
        if stacks:
            traceback.print_exc()
        raise UserError(dg.Failure(sentence(cause)), cause) from None
