"""The switch of one model says what becomes of a version that dies."""

import asyncio
from pathlib import Path
from typing import cast

from serving.front.backends import Backend, BackendMaker
from serving.front.switch import ModelSwitch
from serving.records import ServedVersion, ServingRecords
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
    async def seen() -> ModelSwitch:
        switch = switch_of(tmp_path)
        for _ in range(2):  # it is started, and found dead
            await switch.tick()
        return switch

    switch, told = asyncio.run(seen()), f"it died once, as {WHY}; it starts again after 0.5 s"
    assert switch.problem == f"{MODEL}@1: {told}"
    answering = ServingRecords(tmp_path).answering(MODEL)
    assert answering is not None and answering.problem == switch.problem
    assert [share.note for share in answering.shares] == [told]


def test_what_was_never_started_says_so(tmp_path: Path):
    switch = switch_of(tmp_path)
    switch.state = ServingRecords(tmp_path).state(MODEL)
    assert switch.problem == f"{MODEL}@1: nothing is started yet"
