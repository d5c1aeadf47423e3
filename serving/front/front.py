"""The front's application: OpenAI's API for all models, the state of their versions, metrics, and a page to try it."""

import asyncio
import logging
import time
from collections.abc import Collection
from pathlib import Path

import aiohttp
from aiohttp import web

from slipway.serving.api import answering
from slipway.serving.api.request_parsing import format_value
from slipway.serving.front.backends import BackendMaker
from slipway.serving.front.figures import FrontFigures, Labels, labels
from slipway.serving.front.passing import Passing
from slipway.serving.front.rollout import Answered
from slipway.serving.front.switch import ModelSwitch
from slipway.serving.problems import as_documents, under_names
from slipway.serving.records import ServingRecords
from slipway.trainer.base import exporting, parsing
from slipway.trainer.base.exporting import HealthAnswer

TICK_SECONDS = 0.2
MAX_BYTES = 16 << 20
PROBED = ("/live", "/health")
"""Paths of probes, which may come through a sidecar and so have any host name."""
PAGE = Path(__file__).with_name("page.html")
log = logging.getLogger("slipway.serving")


class Front:
    """All models of one durable tier."""

    def __init__(
        self,
        records: ServingRecords,
        maker: BackendMaker,
        session: aiohttp.ClientSession,
        url: str,
        names: Collection[str] = (),
    ) -> None:
        """`names` are further host names under which the front answers, besides this machine's."""
        self._records = records
        self._maker = maker
        self._session = session
        self._url = url
        self._names = names
        self.switches: dict[str, ModelSwitch] = {}
        self._figures = FrontFigures()
        self._unreadable: dict[str, str] = {}
        self._unlisted = ""
        self._beside: set[asyncio.Task[None]] = set()
        self.wanted_at = time.monotonic()
        """When a model was last wanted, by the monotonic clock."""

    def application(self) -> web.Application:
        application = web.Application(
            client_max_size=MAX_BYTES, middlewares=[under_names(self._names, PROBED), as_documents]
        )
        routes = application.router
        routes.add_post("/v1/completions", self._answer)
        routes.add_post("/v1/chat/completions", self._answer)
        routes.add_get("/v1/models", self._models)
        routes.add_get("/v1/models/{name}", self._model)
        routes.add_get("/health", self._health)
        routes.add_get("/live", self._live)
        routes.add_get("/metrics", self._metrics)
        routes.add_get("/serving", self._serving)
        routes.add_get("/", self._page)
        return application

    async def run(self) -> None:
        """Follow the records until cancelled. A model whose records cannot be read keeps its versions."""
        while True:
            for model in self._model_names():
                if model not in self.switches:
                    switch = self.switches[model] = ModelSwitch(model, self._records, self._maker, self._url)
                    beside = (switch.quality.run(self._session), switch.request_counter.run())
                    self._beside |= {asyncio.create_task(coroutine) for coroutine in beside}
                await self._follow(model)
            if any(switch.backends for switch in self.switches.values()):
                self.wanted_at = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)

    def _model_names(self) -> list[str]:
        """All models with records; while these cannot be listed, the models known so far."""
        try:
            return self._records.models()
        except OSError as error:
            if self._unlisted != str(error):
                log.error("the records of the served models cannot be listed: %s", error)
            self._unlisted = str(error)
            return list(self.switches)

    async def _follow(self, model: str) -> None:
        try:
            await self.switches[model].tick()
            self._unreadable.pop(model, None)
        except (ValueError, OSError) as error:
            if self._unreadable.get(model) != str(error):
                log.error("model %s: %s", model, error)
            self._unreadable[model] = str(error)

    async def end(self) -> None:
        """Save the counts of requests, and stop all backends after their answers in progress."""
        await asyncio.gather(*(switch.request_counter.end() for switch in self.switches.values()))
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await asyncio.gather(*(switch.end() for switch in self.switches.values()))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            document = parsing.value(body)
            assert isinstance(document, dict)
        except (ValueError, AssertionError):
            return web.json_response(answering.problem("expected a JSON object"), status=400)
        name = document.get("model")
        switch = self._named(name)
        only = _version(switch, name) if switch else None
        if switch is None or only is None:
            return self._unknown(name)
        return await Passing(request, body, document, switch, self._session, self._figures, only).answer()

    def _named(self, name: object) -> ModelSwitch | None:
        """The model that a request names, with or without a version. Without a name it is the only model, if there is
        only one."""
        known = self._answered()
        if name in (None, "") and len(known) == 1:
            return self.switches[known[0]]
        if not isinstance(name, str):
            return None
        model = name.partition("@")[0]
        return self.switches[model] if model in known else None

    def _unknown(self, name: object) -> web.Response:
        """The refusal of an unknown model name."""
        known = [
            name
            for model in self._answered()
            for name in (model, *(share.version.named(model) for share in self.switches[model].shares()))
        ]
        problem = f"model: found {format_value(name)}, expected one of: {', '.join(known) or 'none yet'}"
        return web.json_response(answering.problem(problem, field="model", code="model_not_found"), status=404)

    def _answered(self) -> list[str]:
        """The models that should be served."""
        return [
            name
            for name, switch in self.switches.items()
            if switch.state.desired is not None and switch.state.desired.want == "serve"
        ]

    async def _models(self, _: web.Request) -> web.Response:
        listed = [_listed(name, self.switches[name]) for name in self._answered()]
        return web.json_response({"object": "list", "data": listed})

    async def _model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name in self._answered():
            return web.json_response(_listed(name, self.switches[name]))
        return self._unknown(name)

    async def _live(self, _: web.Request) -> web.Response:
        """Whether the front itself runs."""
        return _health_response(exporting.live())

    async def _health(self, _: web.Request) -> web.Response:
        """Whether every model that should be served has a version that can answer."""
        problems = {name: switch.problem for name, switch in self.switches.items()}
        problems = {name: problem for name, problem in problems.items() if problem}
        problems |= self._unreadable
        return _health_response(exporting.health(problems))

    async def _serving(self, _: web.Request) -> web.Response:
        """The versions of each model and their shares of the traffic, for the page and for people."""
        answer = {
            name: {
                "wish": switch.state.number,
                "shares": [
                    {
                        "version": share.version.named(name),
                        "share": share.share,
                        "ready": share.ready,
                        "note": share.note,
                        "requests": switch.answered.get(share.version.checkpoint, Answered()).requests,
                    }
                    for share in switch.shares()
                ],
                "problem": switch.problem or self._unreadable.get(name, ""),
            }
            for name, switch in self.switches.items()
        }
        return web.json_response(answer)

    async def _metrics(self, _: web.Request) -> web.Response:
        ready: dict[Labels, float] = {}
        shares: dict[Labels, float] = {}
        under_way: dict[Labels, float] = {}
        for name, switch in self.switches.items():
            for share in switch.shares():
                at = labels(model=name, version=share.version.number)
                ready[at] = float(share.ready)
                shares[at] = share.share
                backend = switch.backends.get(share.version.checkpoint)
                under_way[at] = backend.in_flight if backend else 0
        gauges = {
            "slipway_serving_ready": ("Whether a version can answer", ready),
            "slipway_serving_share": ("Share of new requests, by version", shares),
            "slipway_serving_in_flight": ("Requests in progress", under_way),
        }
        text = self._figures.text(gauges)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _page(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE)


def _listed(name: str, switch: ModelSwitch) -> dict[str, object]:
    """A model in the form of OpenAI's list of models."""
    return {
        "id": name,
        "object": "model",
        "created": int(switch.state.desired.at) if switch.state.desired else 0,
        "owned_by": "slipway",
        "versions": [share.version.named(name) for share in switch.shares()],
    }


def _version(switch: ModelSwitch, name: object) -> str | None:
    """The checkpoint of the version that a request names; empty if it names none, None if that version does not answer.

    A request that names a version is answered by that version or refused.
    """
    if not isinstance(name, str) or "@" not in name:
        return ""
    versions = (share.version for share in switch.shares())
    return next((version.checkpoint for version in versions if version.named(switch.model) == name), None)


def _health_response(answer: HealthAnswer) -> web.Response:
    return web.Response(text=answer.body, status=answer.status, content_type=exporting.KIND)
