"""Thirty questions that people have, answered by walking the pages of a platform that works, in a real browser.

    SLIPWAY_HOME=HOME slipway demo
    python -m benchmarks.questions HOME [--recipe tiny-decoder] [--beside mlflow dagster] [--ray PYTHON]

The home is what `slipway demo` leaves: a dataset, a sweep, a champion. A further training is started in it, and one of
its ranks is killed, so that something runs and something has happened. Each question is walked from the index of pages:
what has to be clicked, and the seconds until the answer can be read. A question without an answer is listed, and counts
as none. The questions are benchmarks/cases/questions.json. One JSON line for each, and one for all.

The same questions are put to MLflow alone, to Dagster alone and, with the interpreter of an environment that has
`ray[default,train]`, to Ray's dashboard, over the same trainings, logged as an ordinary person logs them
(`benchmarks.peers.logged`). There no way is laid down: all of a peer's pages are looked at (`benchmarks.peers.peer`).
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

from benchmarks.peers import dagster_alone, logged, mlflow_alone, ray_alone
from benchmarks.peers.logged import Logged
from benchmarks.peers.peer import Peer, PeerAnswer
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import TRAINING_TAG
from slipway.resources.promotions import promotion
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import listing, processes
from tests.browser import window as browser
from tests.browser.window import Window
from tests.conftest import Marked, until
from tests.embedded.slipway import free_port

QUESTIONS = Path(__file__).parent / "cases" / "questions.json"
BESIDE = ("mlflow", "dagster")
MARK = "SLIPWAY_BENCHMARK"
PATIENCE_SECONDS = 900.0
ANSWER_SECONDS = 30.0
"""A question whose answer has not come into sight after so long has none."""
STEPS = 100_000
"""Of the training that runs while it is asked about."""


@dataclass(frozen=True)
class ServedHome:
    """A platform that is served, and what its pages are about."""

    url: str
    links: Mapping[str, str]
    """What a click names, by its word: the selector of a link."""
    logged: Callable[[], Logged]
    """What there is to log of it by now."""


@dataclass(frozen=True)
class Answer:
    """How a question was answered."""

    question: str
    clicks: int
    seconds: float
    answered: bool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path, help="what `slipway demo` has left")
    parser.add_argument("--recipe", default="tiny-decoder", help="the training that is started")
    parser.add_argument("--beside", nargs="*", choices=BESIDE, default=BESIDE, help="peers that are asked the same")
    parser.add_argument("--ray", type=Path, help="the interpreter of an environment with Ray; without it, no Ray")
    parser.add_argument("--show", type=Path, help="a folder for a picture of each page without an answer")
    options = parser.parse_args()
    program = browser.program()
    if program is None:
        parser.error(browser.NO_BROWSER)
    os.environ[MARK] = str(os.getpid())
    with (
        working(Home(options.home.absolute()), options.recipe) as platform,
        browser.opened(program, options.show) as window,
    ):
        questions = json.loads(QUESTIONS.read_text())
        answers = [answer_of(window, platform, question) for question in questions]
        others = beside(window, platform, questions, options.beside, options.ray)
    for number, answer in enumerate(answers):
        peers = {name: peer_answers[number].line for name, peer_answers in others.items()}
        _print(
            f"asked: {answer.question}",
            answer.seconds,
            "s",
            5.0,
            clicks=answer.clicks,
            answered=answer.answered,
            peers=peers,
        )
    successes = [answer for answer in answers if answer.answered]
    peer_successes = {
        name: [answer for answer in peer_answers if answer.answered] for name, peer_answers in others.items()
    }
    without = {name: len(questions) - len(peer_answers) for name, peer_answers in peer_successes.items()}
    _print("questions without an answer", len(answers) - len(successes), "", 0, peers=without)
    most = {
        name: max((answer.clicks for answer in peer_answers), default=0)
        for name, peer_answers in peer_successes.items()
    }
    _print("clicks to an answer, at most", max(answer.clicks for answer in successes), "", 2, peers=most)
    middle = {
        name: statistics.median([answer.seconds for answer in peer_answers])
        for name, peer_answers in peer_successes.items()
        if peer_answers
    }
    _print(
        "seconds to an answer, median",
        statistics.median(answer.seconds for answer in successes),
        "s",
        5.0,
        peers=middle,
    )


def beside(
    window: Window, platform: ServedHome, questions: Sequence[Mapping[str, Any]], names: Sequence[str], ray: Path | None
) -> dict[str, list[PeerAnswer]]:
    """By peer, how it answers each question; one peer runs at a time."""
    with tempfile.TemporaryDirectory(prefix="slipway-q-") as folder:
        root = Path(folder)
        starts: dict[str, Callable[[], contextlib.AbstractContextManager[Peer]]] = {
            "mlflow": lambda: mlflow_alone.served(root / "m", platform.logged()),
            "dagster": lambda: dagster_alone.training(root / "d", platform.logged()),
        }
        chosen = [starts[name] for name in names]
        if ray is not None:
            chosen.append(lambda: ray_alone.served(root / "r", platform.logged(), ray.absolute()))
        answers = {}
        for start in chosen:
            try:
                with start() as peer:
                    peer.look(window)
                    answers[peer.name] = [peer.answer(window, question) for question in questions]
            except (AssertionError, Error, OSError, subprocess.SubprocessError) as error:
                print(f"a peer is left out: {error}", file=sys.stderr)
    return answers


@contextlib.contextmanager
def working(home: Home, recipe: str) -> Iterator[ServedHome]:
    """The home with its pages, and a training in it that runs and has lost a rank."""
    port = free_port()
    environ = {**os.environ, "SLIPWAY_HOME": str(home.root), "SLIPWAY_PORT": str(port), "PYTHONPATH": str(Path.cwd())}
    with (home.root / "dev.log").open("wb") as log:
        dev = subprocess.Popen([sys.executable, "-m", "slipway.cli", "dev"], env=environ, stdout=log, stderr=log)
    try:
        until(
            lambda: b"Slipway is at" in (home.root / "dev.log").read_bytes(), "the instance answers", PATIENCE_SECONDS
        )
        store = _started(home, recipe, environ)
        yield ServedHome(f"http://127.0.0.1:{port}/slipway", _links(home, store), lambda: _logged(home, store))
        store.want("stop", "benchmark", "all is asked")
        until(lambda: store.exit() is not None, "the training has stopped", PATIENCE_SECONDS)
    finally:
        dev.send_signal(signal.SIGINT)
        dev.wait()
        for pid in processes.carrying({MARK: os.environ[MARK]}):
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


def _started(home: Home, recipe: str, environ: Mapping[str, str]) -> TrainingStore:
    """A training that has gone on after one of its ranks was killed."""
    fields = [f"run.steps={STEPS}", "checkpoint.every=5"]
    command = [
        sys.executable,
        "-m",
        "slipway.cli",
        "run",
        recipe,
        *fields,
        "--again",
        f"asked {time.time():.0f}",
        "--json",
    ]
    process = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=True)
    store = Trainings(home.durable / "trainings").store(json.loads(process.stdout)["training"])
    until(lambda: store.commits(), "a checkpoint is committed", PATIENCE_SECONDS)
    os.kill(Marked({MARK: os.environ[MARK]}).running("slipway.trainer")[0], signal.SIGKILL)
    until(lambda: _is_over(store), "it has gone on after the fault", PATIENCE_SECONDS)
    return store


def _is_over(store: TrainingStore) -> bool:
    reports = incident_reports.of(store, store.read())
    return bool(reports) and all(report.state == incident_reports.OVER for report in reports)


def _links(home: Home, running: TrainingStore) -> dict[str, str]:
    """The links of the index that lead to what the questions are about."""
    [model] = promotion.models(home.durable)
    champion_version = promotion.champion(home.durable, model)
    assert champion_version is not None, f"{home.root}: found no champion, expected what `slipway demo` leaves"
    [sweep], [dataset] = (listing.names_if_there(home.durable / what) for what in ("sweeps", "datasets"))
    paths = {
        "training": f"trainings/{running.id}",
        "champion": f"trainings/{champion_version.tags[TRAINING_TAG]}",
        "sweep": f"sweeps/{sweep}",
        "dataset": f"datasets/{dataset}",
    }
    return {word: f'a[href="/slipway/{path}"]' for word, path in paths.items()}


def _logged(home: Home, running: TrainingStore) -> Logged:
    """What a peer gets of it."""
    [model] = promotion.models(home.durable)
    champion_version = promotion.champion(home.durable, model)
    assert champion_version is not None
    champion = Trainings(home.durable / "trainings").store(champion_version.tags[TRAINING_TAG])
    [report, *_] = incident_reports.of(running, running.read())
    return logged.of(home, running, champion, model, report.cause.splitlines()[0])


def answer_of(window: Window, platform: ServedHome, question: Mapping[str, Any]) -> Answer:
    """Walk from the index to the answer of one question."""
    clicks = question.get("clicks", [])
    begun = time.perf_counter()
    try:
        window.open(platform.url)
        for click in clicks:
            window.page.locator(platform.links.get(click, click)).first.click(timeout=ANSWER_SECONDS * 1000)
        _until_answered(window, question)
        answered = True
    except (Error, AssertionError):
        answered = False
        window.picture(re.sub(r"\W+", "-", question["asked"]).strip("-").lower(), height=2000)
    return Answer(question["asked"], len(clicks), round(time.perf_counter() - begun, 3), answered)


def _until_answered(window: Window, question: Mapping[str, Any]) -> None:
    """Wait until the answer can be read or seen. Raises Error and AssertionError."""
    if "seen" in question:
        window.page.locator(question["seen"]).first.wait_for(timeout=ANSWER_SECONDS * 1000)
        return
    element = window.page.locator(question.get("in", "body")).first
    until(lambda: re.search(question["shows"], element.inner_text()) is not None, question["asked"], ANSWER_SECONDS)


def _print(metric: str, value: float, unit: str, aim: float, **more: Any) -> None:
    line = {"benchmark": "questions", "metric": metric, "unit": unit, "ours": value, "aim": aim, "better": "lower"}
    print(json.dumps({**line, **more}), flush=True)


if __name__ == "__main__":
    main()
