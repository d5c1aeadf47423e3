"""Reader: somebody with a home, a folder of recipes and a terminal, who types what the pages print."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from slipway.assets.sweeps.store import sweeps
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import TRAINING_TAG
from slipway.resources.promotions import promotion
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.store import Trainings, TrainingStore
from tests.commands import terminal
from tests.commands.terminal import TypedCommand
from tests.commands.turn import Turn
from tests.conftest import until
from tests.embedded import tutorial
from tests.embedded.slipway import ROOT, free_port
from tests.s3 import BUCKET

PATIENCE_SECONDS = 600.0
"""For one command; much more than any takes."""
INTERRUPTED = 130
STEPS = 100_000
"""Of the training that runs while it is shown, changed, paused and stopped."""
SMALL = {
    "SLIPWAY_TRAININGS__TINY_DECODER__MODEL__LAYERS": "2",
    "SLIPWAY_TRAININGS__TINY_DECODER__MODEL__WIDTH": "64",
    "SLIPWAY_TRAININGS__TINY_DECODER__BATCH__LENGTH": "64",
    "SLIPWAY_TRAININGS__TINY_DECODER__OPTIMIZER__LEARNING_RATE": "1e-2",
    "SLIPWAY_TRAININGS__MY_MODEL__RUN__STEPS": "40",
    "SLIPWAY_TRAININGS__MY_MODEL__CHECKPOINT__EVERY": "20",
    "SLIPWAY_TRAININGS__MY_MODEL__REGISTERED_MODEL": "my-model",
    "SLIPWAY_SWEEPS__TINY_DECODER__TRIALS": "2",
    "SLIPWAY_DATASETS__PYTHON_STDLIB__TOKENIZER__VOCAB_SIZE": "1024",
    "SLIPWAY_DATASETS__PYTHON_STDLIB__SOURCE": "{kind: directory, path: ../corpus}",
}
"""The demo's recipes on a small corpus and with a small model: what the pages print about them is as true."""
MY_TEXTS = """\
slipway: dataset/1
description: Texts with addresses
owner: team:data
source: {kind: directory, path: ../corpus, include: ["*.jsonl", "notes/*", "*.py"]}
reading: {metadata: {url: url}}
tokenizer: {vocab_size: 512}
split: {validation: 0.1}
shards: {tokens: 20000}
"""


class Reader:
    """A terminal in a folder of recipes of one's own."""

    def __init__(self, folder: Path) -> None:
        self._terminal = tutorial.Reader(folder)
        self._terminal.environ |= {**SMALL, "SLIPWAY_SERVE_PORT": "0"}
        self.folder, self.recipes, self.code = folder, folder / "my-recipes", folder / "code"
        self.home = Home(self.recipes / ".slipway")

    def types(self, turn: Turn) -> str:
        """Do a turn; returns what is wrong with what became of it, empty for nothing."""
        turn = turn.of(self.names())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            code, output = self._interrupted(turn) if turn.until else self._done(turn)
            wrong = "" if re.search(turn.says, output) else f"it does not say {turn.says!r}"
            if code != turn.code:
                wrong = f"it ends with {code}"
            if "Traceback" in output:
                wrong = "it shows a stack trace"
            if not (wrong and turn.eventually) or time.monotonic() > deadline:
                return f"{turn.typed or turn.printed}: {wrong}: {output[-2000:]}" if wrong else ""
            time.sleep(1)

    def prepare(self) -> None:
        """Put texts and the demo's recipes into the folder that `slipway init` has made."""
        write_texts(self.recipes / "corpus")
        (self.recipes / "datasets" / "my-texts.yaml").write_text(MY_TEXTS)
        for kind in ("datasets", "suites", "trainings", "sweeps"):
            (self.recipes / kind).mkdir(exist_ok=True)
            for recipe in (ROOT / "recipes" / kind).glob("*.yaml"):
                if recipe.stem in ("python-stdlib", "tiny-decoder"):
                    shutil.copy(recipe, self.recipes / kind)
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, tracked.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.code / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.code / name)
        (self.folder / "token").write_text("a-token-of-a-test-that-is-long-enough")

    def names(self) -> dict[str, str]:
        """What the home has by now, by the name that the walk has for it."""
        durable = self.home.durable
        known = Trainings(durable / "trainings")
        stores = [known.store(id) for id in known.ids()]
        reports = incident_reports.of_all(store for store in stores if store.newest_claim() is not None)
        names = {
            "champion": self._champion(),
            "running": next((store.id for store in stores if _is_long(store)), ""),
            "sweep": next((sweep.sweep for sweep in sweeps(durable / "sweeps")), ""),
            "incident": next((report.name for report in reports), ""),
            "snapshot": next((path.stem for path in durable.glob("snapshots/*")), ""),
            "backup": next((str(path) for path in sorted(durable.glob("metadata/*"))), ""),
        }
        paths = {"nvme": self.folder / "nvme", "replica": self.folder / "replica", "durable": durable}
        paths |= {"recipes": self.recipes, "token": self.folder / "token"}
        return {
            **names,
            **{name: str(path) for name, path in paths.items()},
            "port": str(free_port()),
            "s3": f"s3://{BUCKET}/walk",
        }

    def _champion(self) -> str:
        if not promotion.models(self.home.durable):
            return ""
        [model] = promotion.models(self.home.durable)
        champion_version = promotion.champion(self.home.durable, model)
        return champion_version.tags[TRAINING_TAG] if champion_version else ""

    def _started(self, turn: Turn) -> TypedCommand:
        folder = self.code if turn.in_code else self.recipes if self.recipes.exists() else self.folder
        environ = self._terminal.environ | ({"PYTHONPATH": str(self.code)} if turn.in_code else {})
        return terminal.typed(turn.typed or turn.printed, folder, environ, self.folder / "said", anew=turn.in_code)

    def _done(self, turn: Turn) -> tuple[int, str]:
        command = self._started(turn)
        code = command.wait(PATIENCE_SECONDS)
        return code, command.output()

    def _interrupted(self, turn: Turn) -> tuple[int, str]:
        """Wait for what the command prints, then do as Ctrl-C does; the exit code of an interruption counts as none."""
        command = self._started(turn)
        until(lambda: re.search(turn.until, command.output()) or not command.runs(), turn.until, PATIENCE_SECONDS)
        has_begun = command.runs()
        command.interrupt()
        code = command.wait(PATIENCE_SECONDS)
        return (code if code != INTERRUPTED else 0) if has_begun else -1, command.output()


def _is_long(store: TrainingStore) -> bool:
    steps = store.specification().identity_config["run"]["steps"]
    return isinstance(steps, int) and steps == STEPS


def write_texts(folder: Path) -> None:
    """Texts of several kinds: with addresses, a note, and sources of Python's own library."""
    (folder / "notes").mkdir(parents=True)
    page = {number: f"https://a.example/{'page' if number == 3 else number}" for number in range(40)}
    lines = [{"url": url, "text": f"Somebody wrote thing {n} here. " * (n + 2)} for n, url in page.items()]
    (folder / "forum.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "notes" / "a.txt").write_text("A private letter, which nobody else should read.\n" * 5)
    letter = [f"Sentence {number} of a letter that was sent twice, to reader {number % 7}.\n" for number in range(300)]
    for name, last in (("b", "Yours"), ("c", "Truly yours")):
        (folder / "notes" / f"{name}.txt").write_text("".join([*letter, last]))
    library = Path(os.__file__).parent
    for package in ("email", "json", "asyncio", "importlib", "logging", "unittest"):
        for source in (library / package).glob("*.py"):
            shutil.copy(source, folder / f"{package}-{source.name}")
