"""Generation tasks answered by a real worker: ours, and those of the real harness where it is installed."""

import json
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slipway.assets.suites.generation import answers, generate, harness
from slipway.assets.suites.generation.answers import TaskFigures
from slipway.assets.suites.generation.generate import Questions
from slipway.serving.records import ServedVersion
from slipway.trainer.base import codec, digest
from tests.conftest import Marked
from tests.serving.models import exported

MODEL = "small"
installed = pytest.mark.skipif(not harness.version(), reason="lm-evaluation-harness is not installed")


def evaluated(
    durable: Path, version: ServedVersion, tasks: tuple[str, ...], include: str = "", hours: float = 1.0
) -> dict[str, TaskFigures]:
    questions = Questions(tasks, 4, include, hours)
    return {figures.task: figures for figures in generate.evaluate(durable, MODEL, version, questions, print)}


def rows(durable: Path, figures: TaskFigures) -> list[dict[str, object]]:
    """The examples of a task, once file, hash and figures agree."""
    folder = durable / answers.FOLDER / figures.manifest
    table = folder / f"{figures.table}.parquet"
    assert digest.of_bytes(table.read_bytes()) == figures.table
    assert codec.read(folder / f"{figures.task}.json", TaskFigures, answers.FORMAT) == figures
    return list(pq.read_table(table).to_pylist())


@pytest.mark.skipif(bool(harness.version()), reason="lm-evaluation-harness is installed")
def test_a_task_that_only_the_harness_has_is_refused_before_anything_begins(tmp_path: Path):
    with pytest.raises(ValueError, match=r"task gsm8k: expected one of copying, counting, adding; .*pip install"):
        generate.check(["adding", "gsm8k"])


@pytest.mark.nightly
def test_each_example_of_our_own_tasks_is_kept_with_its_answer(tmp_path: Path):
    version = exported(tmp_path, 1)
    figures_by_task = evaluated(tmp_path, version, ("copying", "adding"))
    assert list(figures_by_task) == ["copying", "adding"]
    for task in figures_by_task.values():
        answered = rows(tmp_path, task)
        assert [row["example"] for row in answered] == [0, 1, 2, 3] and {row["metric"] for row in answered} == {
            "exact_match"
        }
        assert all(row["prompt"] and row["answer"] for row in answered)
        assert task.metrics["exact_match"] == sum(float(str(row["value"])) for row in answered) / 4
    again = evaluated(tmp_path, version, ("adding",))
    assert again["adding"] == figures_by_task["adding"] == answers.known(tmp_path, version.checkpoint, "adding", 4)
    assert answers.known(tmp_path, version.checkpoint, "adding", 5) is None
    with pytest.raises(ValueError, match="task adding: 0 of 4 examples after 1e-09 h, expected all: raise hours"):
        evaluated(tmp_path, version, ("adding",), hours=1e-9)


@pytest.mark.nightly
def test_a_version_whose_bytes_do_not_verify_answers_nothing(tmp_path: Path):
    version = exported(tmp_path, 1)
    weights = tmp_path / version.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match="found BLAKE3"):
        evaluated(tmp_path, version, ("adding",))
    assert not (tmp_path / answers.FOLDER).exists()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two tasks of the harness whose examples are files: one that generates, and one of likelihoods."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    questions = [
        {"asked": f"{n} + 1 =", "answer": str(n + 1), "choices": [str(n), str(n + 1)], "right": 1} for n in range(6)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    common = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}\ntest_split: test\n"
    common += 'doc_to_text: "{{asked}}"\n'
    (folder / "written.yaml").write_text(
        f'task: written\n{common}output_type: generate_until\ndoc_to_target: "{{{{answer}}}}"\n'
        'generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}\nmetric_list: [{metric: exact_match}]\n'
    )
    (folder / "chosen.yaml").write_text(
        f'task: chosen\n{common}output_type: multiple_choice\ndoc_to_target: right\ndoc_to_choice: "{{{{choices}}}}"\n'
        "metric_list: [{metric: acc}]\n"
    )
    return folder


@installed
@pytest.mark.nightly
def test_the_harness_asks_our_server_and_its_examples_are_kept(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    figures_by_task = evaluated(tmp_path, exported(tmp_path, 1), ("written", "chosen"), str(own))
    assert {name: set(sample.metrics) for name, sample in figures_by_task.items()} == {
        "written": {"exact_match"},
        "chosen": {"acc"},
    }
    written, chosen = (rows(tmp_path, figures_by_task[name]) for name in ("written", "chosen"))
    assert [(row["prompt"], row["expected"]) for row in written] == [(f"{n} + 1 =", str(n + 1)) for n in range(4)]
    for row in chosen:
        costs = [float(cost) for cost, _ in json.loads(str(row["answer"]))]
        assert row["value"] == float(costs[1] > costs[0])


def test_a_harness_that_does_not_end_is_killed_at_its_deadline_with_all_below_it(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "modules" / harness.PACKAGE / "__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setenv("PYTHONPATH", str(program.parents[1]))
    server = harness.AskedServer("http://127.0.0.1:1", MODEL, tmp_path, 16)
    messages: list[str] = []
    monkeypatch.setattr(harness, "SAY_SECONDS", 1.5)
    with pytest.raises(ValueError, match="did not end before the deadline, and was killed"):
        request = harness.HarnessRequest(("gsm8k",), "", 4, time.monotonic() + 3.0)
        harness.run(server, request, tmp_path, messages.append)
    assert messages[0] == "lm-evaluation-harness: gsm8k, 0 s" and len(set(messages)) == len(messages)
    marked.until_gone()


@installed
@pytest.mark.nightly
def test_a_task_that_the_harness_does_not_know_is_reported(tmp_path: Path):
    with pytest.raises(ValueError, match=r"(?s)lm-evaluation-harness ended with exit code 1.*no_such_task"):
        evaluated(tmp_path, exported(tmp_path, 1), ("no_such_task",))
