"""Viewers: whoever is named no operator changes nothing, by whatever door: each mutation, each way of sending one."""

import asyncio
import http.client
import json
import urllib.parse
from collections.abc import Iterator

import dagster as dg
import pytest
from websockets.asyncio.client import connect

from slipway.resources.identity import CANCELLED_TAG
from tests.drills.graphql import LAUNCH, LAUNCH_AGAIN
from tests.resources.every_mutation import AskedMutation, every_mutation
from tests.resources.served import HEADER, TERMINATE, Answer, Served, basic, guarded_by, launching


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with guarded_by(tmp_path_factory.mktemp("secrets") / "token", tmp_path_factory.mktemp("guarded")) as server:
        yield server


def refused(answer: Answer, person: str) -> bool:
    """Whether a mutation was not let through, with the sentence that says why."""
    body = json.loads(answer.text)
    operators = "oda@x.example, pia@x.example, åke@x.example"
    refusal = f"found {person or 'nobody known'}, expected one of the platform's operators: {operators}"
    return body["data"] is None and [error["message"].partition(": ")[2] for error in body["errors"]] == [refusal]


@pytest.mark.parametrize("person", ["", "vic@x.example"])
def test_a_viewer_launches_and_ends_nothing(guarded: Served, person: str):
    running = guarded.launch("oda@x.example", {})["run"]["runId"]
    assert refused(guarded.click(person, LAUNCH, {"params": launching({})}), person)
    assert refused(guarded.click(person, TERMINATE, {"run": running}), person)
    waiting = guarded.instance.get_run_by_id(running)
    assert waiting is not None and waiting.status is dg.DagsterRunStatus.QUEUED and CANCELLED_TAG not in waiting.tags
    again = {"parentRunId": running, "strategy": "ALL_STEPS"}
    assert refused(guarded.click(person, LAUNCH_AGAIN, {"params": again}), person)
    for kind, more in {"materialization": {}, "observation": {}, "check": {"check_name": "c", "passed": True}}.items():
        reported = guarded.ask(f"/report_asset_{kind}/made", more, Authorization=basic(), **{HEADER: person})
        assert reported.status == 401, kind


@pytest.mark.parametrize("mutation", every_mutation(), ids=lambda mutation: mutation.name)
def test_no_mutation_of_the_webserver_is_a_viewers(guarded: Served, mutation: AskedMutation):
    answer = guarded.click("vic@x.example", mutation.query, mutation.variables)
    assert refused(answer, "vic@x.example") is not mutation.is_of_the_reader, answer


MUTATION = 'mutation M { setConcurrencyLimit(concurrencyKey: "k", limit: 7) }'
DISGUISES = {
    "an alias": 'mutation M { logTelemetry: setConcurrencyLimit(concurrencyKey: "k", limit: 7) }',
    "a second operation": "query Q { __typename }\n" + MUTATION,
    "a fragment": 'mutation M { ...F } fragment F on Mutation { setConcurrencyLimit(concurrencyKey: "k", limit: 7) }',
    "a fragment in place": 'mutation M { ... on Mutation { setConcurrencyLimit(concurrencyKey: "k", limit: 7) } }',
    "behind a harmless one": 'mutation M { setNuxSeen setConcurrencyLimit(concurrencyKey: "k", limit: 7) }',
    "commas and comments": '#query\n,,,\ufeffmutation M{setConcurrencyLimit(concurrencyKey:"k",limit:7)}',
}


def limits(served: Served) -> int:
    """The limit that the mutation above sets, 0 before."""
    pool_limits = served.instance.event_log_storage.get_pool_limits()
    return next((usage.limit for usage in pool_limits if usage.name == "k"), 0)


@pytest.mark.parametrize("query", DISGUISES.values(), ids=DISGUISES)
def test_a_mutation_in_disguise_is_one(guarded: Served, query: str):
    body = {"query": query, "operationName": "M"}
    answer = guarded.ask("/graphql", body, Authorization=basic(), **{HEADER: "vic@x.example"})
    assert "expected one of the platform's operators" in answer.text and limits(guarded) == 0


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_mutation_in_an_address_is_not_run_whoever_follows_it(guarded: Served, method: str):
    """A picture, a link or a form of another site can send such a request with the cookie of an operator."""
    query = urllib.parse.urlencode({"query": MUTATION})
    operator = {"Authorization": basic(), HEADER: "oda@x.example", "Content_Type": "text/plain"}
    answer = guarded.ask(f"/graphql?{query}", {} if method == "POST" else None, method, **operator)
    assert limits(guarded) == 0
    if method == "PUT":
        assert answer.status == 405
    else:
        assert f"found {method} of text/plain, expected a mutation by POST" in answer.text


@pytest.mark.parametrize("levels", [150, 300, 10_000])
def test_a_mutation_in_a_document_of_many_levels_is_not_run(guarded: Served, levels: int):
    """The parser gives up at a depth that depends on who calls it."""
    query = f"{MUTATION} query Q {{ {'a{' * levels}b{'}' * levels} }}"
    body = {"query": query, "operationName": "M"}
    answer = guarded.ask("/graphql", body, Authorization=basic(), **{HEADER: "vic@x.example"})
    assert '"data":null' in answer.text and limits(guarded) == 0


def test_a_mutation_over_a_socket_is_not_run(guarded: Served):
    async def sent() -> str:
        where, headers = f"ws://127.0.0.1:{guarded.port}/graphql", {"Authorization": basic(), HEADER: "vic@x.example"}
        async with connect(where, subprotocols=["graphql-ws"], additional_headers=headers) as socket:  # type: ignore[list-item]
            await socket.send(json.dumps({"id": "1", "type": "start", "payload": {"query": MUTATION}}))
            return str(await socket.recv())

    assert json.loads(asyncio.run(sent()))["type"] == "error" and limits(guarded) == 0


@pytest.mark.parametrize("body", [[{"query": MUTATION}], {"query": [MUTATION]}, {"query": 1}, "mutation", None])
def test_a_batch_or_another_shape_is_no_document(guarded: Served, body: object):
    answer = guarded.ask("/graphql", body, "POST", Authorization=basic(), Content_Type="application/json")
    assert answer.status in (400, 500) and limits(guarded) == 0


def test_of_two_names_in_the_header_neither_is_believed(guarded: Served):
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=30)
    connection.putrequest("POST", "/graphql")
    body = json.dumps({"query": MUTATION}).encode()
    typed = ("Authorization", basic()), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))
    for name, value in (*typed, (HEADER, "vic@x.example"), (HEADER.lower(), "oda@x.example")):
        connection.putheader(name, value)
    connection.endheaders(body)
    assert "found 2 names, expected one" in connection.getresponse().read().decode() and limits(guarded) == 0


def test_an_operator_does_what_a_viewer_may_not(guarded: Served):
    assert "errors" not in json.loads(guarded.click("oda@x.example", MUTATION, {}).text) and limits(guarded) == 7
    guarded.click("oda@x.example", 'mutation M { deleteConcurrencyLimit(concurrencyKey: "k") }', {})
    assert limits(guarded) == 0
