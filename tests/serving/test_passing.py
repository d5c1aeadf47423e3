"""A request on its way to servers that answer with faults: who is asked how often, and whom it speaks against."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from slipway.serving.front.backends import Backend, BackendMaker
from slipway.serving.front.figures import FrontFigures
from slipway.serving.front.passing import TRIES, Passing
from slipway.serving.front.switch import ModelSwitch
from slipway.serving.records import ServedVersion, ServingRecords, SwitchPolicy, SwitchVerdict
from tests.serving.fronts import MODEL, wish

FIRST, SECOND = (ServedVersion(number, number * 64, f"exports/{number}", number * 64) for number in "12")
ANSWER = {"usage": {"completion_tokens": 1}}


class ReadyBackend(Backend):
    """A server that is there."""

    async def start(self) -> None:
        self._is("ready")

    async def end(self) -> None:
        pass


class Maker:
    """Makes backends of servers by the numbers of their versions."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.urls = urls

    def make(self, model: str, version: ServedVersion) -> Backend:
        backend = ReadyBackend(model, version)
        backend.url = self.urls[version.number]
        return backend


@contextlib.asynccontextmanager
async def server(statuses: Sequence[int], calls: list[int]) -> AsyncIterator[str]:
    """A server that answers with these, the last one for ever; `calls` gets each."""

    async def answer(_: web.Request) -> web.Response:
        calls.append(statuses[min(len(calls), len(statuses) - 1)])
        return web.json_response(ANSWER, status=calls[-1])

    application = web.Application()
    application.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def statuses_of(
    durable: Path, old: Sequence[int], new: Sequence[int], only: str = ""
) -> tuple[int, list[int], list[int], ModelSwitch]:
    """The status of one request to a version and its canary, what each of them answered, and what was counted; `only`
    is the checkpoint of the version that the request names."""
    records, first, second = ServingRecords(durable), list[int](), list[int]()
    wish(records, FIRST)
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    wish(records, SECOND, SwitchPolicy(share=0.5))
    async with server(old, first) as one, server(new, second) as other, aiohttp.ClientSession() as session:
        switch = ModelSwitch(MODEL, records, cast(BackendMaker, Maker({"1": one, "2": other})), "http://127.0.0.1:1")
        await switch.tick()
        request = make_mocked_request("POST", "/v1/completions")
        passing = Passing(request, b"", {"prompt": "x"}, switch, session, FrontFigures(), only)
        status = (await passing.answer()).status
    return status, first, second, switch


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.serving.front.passing.PAUSE_SECONDS", 0.0)


async def counts(durable: Path, old: Sequence[int], new: Sequence[int]) -> tuple[int, int, int, int]:
    """The status, how often both were asked, and the failures of each."""
    status, first, second, switch = await statuses_of(durable, old, new)
    old_failed, new_failed = (switch.answered[version.checkpoint].failed for version in (FIRST, SECOND))
    return status, len(first) + len(second), old_failed, new_failed


def test_a_request_to_which_every_server_answers_with_a_fault_ends_and_speaks_against_none(tmp_path: Path):
    assert asyncio.run(counts(tmp_path, [500], [500])) == (502, TRIES, 0, 0)


def test_a_fault_that_another_version_does_not_have_speaks_against_the_first(tmp_path: Path):
    assert asyncio.run(counts(tmp_path, [500], [200])) == (200, 2, 1, 0)


def test_a_request_that_names_a_version_is_answered_by_that_one_alone(tmp_path: Path):
    for number, version in enumerate((FIRST, SECOND)):
        status, *answered, _ = asyncio.run(statuses_of(tmp_path / version.number, [200], [200], version.checkpoint))
        assert status == 200 and answered[number] == [200] and answered[1 - number] == []
    status, first, second, _ = asyncio.run(statuses_of(tmp_path / "failing", [200], [500, 500, 200], SECOND.checkpoint))
    assert (status, first, second) == (200, [], [500, 500, 200])


def test_what_a_client_asks_wrongly_does_not_count_as_given(tmp_path: Path):
    status, first, second, switch = asyncio.run(statuses_of(tmp_path, [400], [400]))
    assert (status, len(first) + len(second)) == (400, 1)
    assert sum(answered.begun + answered.failed for answered in switch.answered.values()) == 0
