"""Formats on disk: each version string of the code is in docs/formats.md, and each record without one is named there.

`state.json` counts all formats together, so that a record of one plain fact needs no version of its own; that it
has none is a decision, and stands here.
"""

import ast
import re

import pytest

from tests.test_files import HOUSE, ROOT, name_of, trees

pytestmark = pytest.mark.pure

VERSION = re.compile(r"slipway\.[a-z._-]+/\d+")
DOCUMENT = ROOT / "docs" / "formats.md"
NOT_ON_DISK = {"slipway.plan-question/1": "what is asked of `python -m slipway.trainer.plan`, by its input"}
OTHERS = {"slipway.checkpoint/2", "slipway.fence/2", "slipway.snapshot/2"}
"""In messages that show what a reader says of another version."""
WRITES = {"create_only": 3, "replace": 3, "encode": 2}
"""The codec's functions, with the number of arguments of a call that names a format."""
WITHOUT = {
    "assets/datasets/documents/held_out.py": "`held_out.json`",
    "assets/datasets/snapshots/pointer.py": "`current.json`",
    "assets/promotion/evaluation.py": "`evaluations/`",
    "assets/measurement.py": "what an evaluator is asked",
    "assets/sweeps/store.py": "`specification.json`",
    "resources/fleet/embedded.py": "`lost.json`",
    "resources/launchers/local/folder.py": "the files of a job beside `job.json`",
    "resources/promotions/promotion.py": "`mirrored.json`",
    "resources/mlflow/sweeps.py": "`tracking.json`",
    "resources/mlflow/ledger_delivery.py": "`tracking.json`",
    "resources/node_tasks/by_jobs.py": "outcomes of node tasks",
    "resources/receipts.py": "the receipts of staging",
    "resources/trainings/refusals.py": "`jobs/`",
    "resources/trainings/store.py": "`jobs/`",
    "resources/trainings/logs.py": "`tails/`",
    "sensors/support/downtime.py": "`.watched.json`",
    "trainer/checkpoint/saving/parts.py": "`parts/`",
    "trainer/node_task.py": "outcomes of node tasks",
    "trainer/record/agreement.py": "`stops/`",
    "trainer/record/rank_exit.py": "`ends/`",
    "trainer/record/heartbeat.py": "heartbeats",
    "trainer/record/incarnation.py": "`members/`",
    "trainer/staging/stage.py": "the marker",
    "trainer/step/exhaustion.py": "`micro.json`",
}
"""Which files write records without a version, and the words of the document that name them."""
IN_MEMORY = {"trainer/elastic/generations.py", "trainer/elastic/generation_listener.py", "trainer/elastic/job_store.py"}
"""Their records are in the job's store, which lives as long as the job."""


def code() -> dict[str, ast.Module]:
    return {name_of(path): tree for path, tree in trees().items() if name_of(path).split("/")[0] in HOUSE}


def versions() -> set[str]:
    """Every text in the code that is a version, and nothing else."""
    texts = (
        constant.value for tree in code().values() for constant in ast.walk(tree) if isinstance(constant, ast.Constant)
    )
    return {text for text in texts if isinstance(text, str) and VERSION.fullmatch(text)}


def without_version() -> set[str]:
    """The files with a call of the codec that names no format."""
    return {name for name, tree in code().items() for call_node in ast.walk(tree) if _is_without(call_node)} - IN_MEMORY


def _is_without(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="codec"), attr=str(name))) if name in WRITES:
            return len(node.args) + len(node.keywords) < WRITES[name]
    return False


def test_every_version_of_a_format_is_documented_and_none_that_is_gone():
    documented = set(VERSION.findall(DOCUMENT.read_text()))
    assert versions() - set(NOT_ON_DISK) == documented - OTHERS


def test_a_record_without_a_version_is_one_of_those_that_the_document_names():
    text = " ".join(DOCUMENT.read_text().split())
    [listed] = re.findall(r"These files have no version string:(.*?)## Upgrade", text)
    assert without_version() == set(WITHOUT)
    assert {sentence for sentence in WITHOUT.values() if sentence not in listed} == set()
