"""The switch of one model says what becomes of a version that dies."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from slipway.serving.front.backends import Backend, BackendMaker
from slipway.serving.front.switch import ModelSwitch
from slipway.serving.records import ServedVersion, ServingRecords, SwitchVerdict
from tests.serving.fronts import MODEL, wish

VERSION = ServedVersion("1", "ab" * 32, "exports/1", "cd" * 32)
WHY = "its process ended with exit code -9"


class DyingBackend(Backend):
    """What dies as soon as it is started."""

    async def start(self) -> None:
        self._is("dead", WHY)

    async def end(self) -> None:
        pass


class DyingMaker:
    def make(self, model: str, version: ServedVersion) -> Backend:
        return DyingBackend(model, version)


def switch_of(durable: Path) -> ModelSwitch:
    wish(ServingRecords(durable), VERSION)
    return ModelSwitch(MODEL, ServingRecords(durable), cast(BackendMaker, DyingMaker()), "http://127.0.0.1:1")


def test_a_version_that_died_and_waits_for_its_next_start_says_so_to_everybody(tmp_path: Path):
    async def observe() -> ModelSwitch:
        switch = switch_of(tmp_path)
        for _ in range(2):  # it is started, and found dead
            await switch.tick()
        return switch

    switch, note = asyncio.run(observe()), f"it died once, as {WHY}; it starts again after 0.5 s"
    assert switch.problem == f"{MODEL}@1: {note}"
    answering = ServingRecords(tmp_path).answering(MODEL)
    assert answering is not None and answering.problem == switch.problem
    assert [share.note for share in answering.shares] == [note]


class RefusingMaker:
    """Makes what refuses its model so many times, and then is ready."""

    def __init__(self, times: int) -> None:
        self.refusals_left = times

    def make(self, model: str, version: ServedVersion) -> Backend:
        self.refusals_left -= 1
        return RefusingBackend(model, version, self.refusals_left >= 0)


class RefusingBackend(Backend):
    def __init__(self, model: str, version: ServedVersion, refuses: bool) -> None:
        super().__init__(model, version)
        self._refuses = refuses

    async def start(self) -> None:
        self._is("refused", NO_MEMORY) if self._refuses else self._is("ready")

    async def end(self) -> None:
        pass


NO_MEMORY = "the weights take 99 MiB, and 9 MiB of memory are free"


def test_a_version_that_has_answered_before_is_tried_again_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its server was killed, and started again in a moment without memory for it."""
    monkeypatch.setattr("slipway.serving.front.switch.PAUSE_SECONDS", 0.0)
    records = ServingRecords(tmp_path)
    wish(records, VERSION)
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    switch = ModelSwitch(MODEL, records, cast(BackendMaker, RefusingMaker(2)), "http://127.0.0.1:1")

    async def observe() -> list[str]:
        problems = list[str]()
        while switch.choose() is None and len(problems) < 10:
            await switch.tick()
            problems.append(switch.problem)
        return problems

    assert asyncio.run(observe()) == [f"{MODEL}@1: {NO_MEMORY}", f"{MODEL}@1: {NO_MEMORY}", ""]


def test_a_new_version_that_is_refused_is_not_tried_again(tmp_path: Path):
    records = ServingRecords(tmp_path)
    wish(records, VERSION)
    maker = RefusingMaker(1)
    switch = ModelSwitch(MODEL, records, cast(BackendMaker, maker), "http://127.0.0.1:1")

    async def observe() -> None:
        for _ in range(3):
            await switch.tick()

    asyncio.run(observe())
    verdict = records.state(MODEL).verdict
    assert verdict is not None and (verdict.outcome, verdict.why) == ("back", NO_MEMORY)
    assert maker.refusals_left == 0 and switch.problem == NO_MEMORY


def test_what_was_never_started_says_so(tmp_path: Path):
    switch = switch_of(tmp_path)
    switch.state = ServingRecords(tmp_path).state(MODEL)
    assert switch.problem == f"{MODEL}@1: not started yet"
