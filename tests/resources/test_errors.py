"""Errors of others in one sentence."""

import pytest

from slipway.resources.errors import sentence

pytestmark = pytest.mark.pure
MLFLOW_FAILURE = "API request to http://mlflow:5000/api/2.0/mlflow/registered-models/get failed with exception "
REFUSED = (
    "HTTPConnectionPool(host='mlflow', port=5000): Max retries exceeded with url: /api/2.0/mlflow/registered-models "
    "(Caused by NewConnectionError(\"HTTPConnection(host='mlflow', port=5000): Failed to establish a new connection: "
    '[Errno 111] Connection refused"))'
)
SILENT = "HTTPConnectionPool(host='mlflow', port=5000): Read timed out. (read timeout=120)"


@pytest.mark.parametrize(
    ("cause", "message"),
    [(REFUSED, "[Errno 111] Connection refused"), (SILENT, "Read timed out. (read timeout=120)")],
    ids=["refused", "silent"],
)
def test_a_server_of_mlflow_that_does_not_answer_is_reported_with_its_address_and_the_last_cause(
    cause: str, message: str
):
    assert sentence(Exception(MLFLOW_FAILURE + cause)) == f"MLflow at http://mlflow:5000 does not answer: {message}"


def test_other_errors_are_reported_as_they_are():
    assert sentence(ValueError("found 3, expected 4")) == "found 3, expected 4"
    assert sentence(FileNotFoundError(2, "No such file or directory", "a.json")) == "a.json: No such file or directory"
