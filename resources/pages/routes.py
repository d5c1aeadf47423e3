"""The read-only routes of the pages, for a Starlette application: trainings, sweeps, datasets, and their index.

    /slipway                               the index
    /slipway/live, /slipway/health         whether the webserver answers; the problems of the platform
    /slipway/costs                         the costs of trainings in the last 30 days, or in ?days=N
    /slipway/morning                       the daily report: the last 24 hours, or ?hours=N
    /slipway/trainings/<id>                the page of a training; …/live is the update of an open page, as JSON
    /slipway/trainings/<id>/profiles/<n>   a profile to download
    /slipway/sweeps/<id>                   the stored page of a sweep
    /slipway/datasets/<name>               the stored page of a dataset

Nothing is written, and apart from the prices, nothing outside the durable tier is read. An id or name must be a single
component of a path.
"""

import datetime
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from slipway.resources import html_layout, platform
from slipway.resources.daily_report import page as night_page
from slipway.resources.daily_report.reading import ReportReader
from slipway.resources.daily_report.report import report
from slipway.resources.mlflow.pages import Pages
from slipway.resources.pages import costs, index, training
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.trainings.spending import SpendingReader
from slipway.resources.trainings.store import Trainings
from slipway.trainer.base import exporting
from slipway.trainer.base.exporting import HealthAnswer
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import files

PAGE = "report.html"
"""The file name of the page in the folder of a sweep, a dataset or a training."""
DAY = "24"
"""The default period of the daily report, in hours."""
MONTH = "30"
"""The default period of the cost page, in days."""
LONGEST = 3660
"""The longest period of the cost page, in days."""
POLICY = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def routes(durable: Path, problems: Callable[[], Mapping[str, str]], mlflow: str = "") -> list[Route]:
    """The routes over this durable tier; all begin with `/slipway`.

    problems: the problems of the platform, by subject. mlflow: the address of MLflow for browsers, or "".
    """
    reader = TrainingReader(durable, pages=Pages(mlflow=mlflow))
    root = Trainings(durable / "trainings")
    nights = ReportReader(durable)
    spent = SpendingReader(durable)

    def of_training(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                return answer(request)
            except (ValueError, OSError) as error:
                return PlainTextResponse(f"{error}\n", 404, POLICY)

        return endpoint

    def page(request: Request) -> Response:
        view = reader.view(root.store(request.path_params["id"]))
        return HTMLResponse(training.html(view, served=True), headers=POLICY)

    def renewal(request: Request) -> Response:
        return JSONResponse(training.renewal(reader.view(root.store(request.path_params["id"]))), headers=POLICY)

    def profile(request: Request) -> Response:
        folder = root.store(request.path_params["id"]).folder / files.PROFILES
        path = _path(folder, request.path_params["name"])
        return FileResponse(path, media_type="application/octet-stream", headers=POLICY)

    def stored_page(below: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            kept_page = _path(durable / below / _part(request.path_params["id"]), PAGE)
            text = kept_page.read_text(encoding="utf-8")
            return HTMLResponse(html_layout.with_navigation(text, training.NAV), headers=POLICY)

        return answer

    def live(request: Request) -> Response:
        return _health_response(exporting.live())

    def wrong(request: Request) -> Response:
        return _health_response(exporting.health(problems()))

    def daily_report(request: Request) -> Response:
        now = time.time()
        hours = _hours(request.query_params.get("hours", DAY))
        night_report = report(nights.read(now - hours * HOUR, now))
        return HTMLResponse(night_page.html(night_report, "/"), headers=POLICY)

    def money(request: Request) -> Response:
        now = time.time()
        days = _days(request.query_params.get("days", MONTH))
        today = datetime.datetime.fromtimestamp(now, datetime.UTC).date()
        spending = spent.since(today - datetime.timedelta(days=days - 1), now)
        return HTMLResponse(costs.html(spending, days, platform.costs_here().rank_prices), headers=POLICY)

    def everything(request: Request) -> Response:
        return HTMLResponse(index.html(reader), headers=POLICY)

    table = {
        "/slipway": everything,
        f"/slipway{exporting.LIVE}": live,
        f"/slipway{exporting.HEALTH}": wrong,
        "/slipway/morning": daily_report,
        "/slipway/costs": money,
        "/slipway/trainings/{id}": page,
        "/slipway/trainings/{id}/live": renewal,
        "/slipway/trainings/{id}/profiles/{name}": profile,
        "/slipway/sweeps/{id}": stored_page("sweeps"),
        "/slipway/datasets/{id}": stored_page("datasets"),
    }
    return [Route(path, of_training(answer), methods=["GET"]) for path, answer in table.items()]


def _health_response(answer: HealthAnswer) -> Response:
    return Response(answer.body, answer.status, POLICY, exporting.KIND)


def _path(folder: Path, name: str) -> Path:
    """A file in a folder. Raises ValueError if it does not exist."""
    path = folder / _part(name)
    if not path.is_file():
        raise ValueError(f"{name}: there is no such page or file yet")
    return path


def _hours(text: str) -> float:
    """A number of hours. Raises ValueError for any other text."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise ValueError(f"hours: found {text!r}, expected a number above 0")
    return hours


def _days(text: str) -> int:
    """A number of days. Raises ValueError for any other text."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= LONGEST):
        raise ValueError(f"days: found {text!r}, expected a whole number from 1 to {LONGEST:,}")
    return int(text)


def _part(name: str) -> str:
    """A name that is a single component of a path. Raises ValueError for any other."""
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise ValueError(f"found {name!r}, expected the name of a subject")
    return name
