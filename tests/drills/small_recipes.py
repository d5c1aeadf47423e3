"""A platform small enough to be killed often: recipes of some hundred short steps on a corpus of small texts.

Two trainings, one that takes a single node and one that takes both, and the example of a script; each drill makes a
training of its own from one of them, distinguished by its cause. The deadlines of progress, and of a step, are long:
drills hold trainers by SIGSTOP.
"""

import random
import shutil
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "recipes" / "examples" / "bigram.py"
DATASET, ALONE, PAIR, SCRIPT, SWEEP = "texts", "alone", "pair", "script", "search"
TRIALS = 4

_DATASET = """\
slipway: dataset/1
description: Small texts
owner: team:drills
source: {kind: directory, path: ../../corpus, include: ["*.txt"]}
tokenizer: {vocab_size: 512}
split: {validation: 0.1}
shards: {tokens: 20000}
"""

_TRAINING = """\
slipway: training/1
description: A decoder with steps of about a tenth of a second
owner: team:drills
dataset: texts
model: {layers: 2, width: 64, heads: 4, kv_heads: 2, hidden: 128}
batch: {sequences: 32, length: 128, micro: 32}
optimizer: {learning_rate: 1e-3, warmup_steps: 10} # a sweep finds a better one
run: {steps: 200}
checkpoint: {every: 25}
storage: {nvme: {minutes: 0, last: 1}} # none by the clock
placement: {nodes: {min: 1, max: NODES}, ranks_per_node: 1}
recovery: {no_progress_seconds: 600, hang_seconds: 600, failures_without_checkpoint: 3}
registered_model: drill-NAME
"""

_SCRIPT = """\
slipway: training/1
description: The example of a script, with steps of some hundredths of a second
owner: team:drills
dataset: texts
code: ../../code
command: [python, bigram.py]
parameters: {steps: 600, batch: 32, length: 128, width: 64, learning_rate: 3e-3, seed: 0, checkpoint_every: 100}
placement: {nodes: {min: 1, max: 1}, ranks_per_node: 1}
recovery: {no_progress_seconds: 60, failures_without_checkpoint: 3}
"""

_SWEEP = f"""\
slipway: sweep/1
description: Four trials of equal length, two at once
owner: team:drills
training: {ALONE}
space:
  optimizer.learning_rate: {{loguniform: [1e-3, 1e-2]}}
sampler: random
seed: 0
trials: {TRIALS}
parallel: 2
scheduler: {{kind: none}}
trial: {{run.steps: STEPS, validation.every: 20, validation.sequences: 4, checkpoint.every: 40}}
limits: {{failed_trials: 0, retries: 1}}
"""


def write(folder: Path, trial_steps: int) -> Path:
    """Write the corpus and the recipes below `folder`; returns the recipes' folder."""
    recipes = folder / "recipes"
    files = {f"datasets/{DATASET}": _DATASET, f"sweeps/{SWEEP}": _SWEEP.replace("STEPS", str(trial_steps))}
    files[f"trainings/{SCRIPT}"] = _SCRIPT
    for name, nodes in ((ALONE, "1"), (PAIR, "2")):
        files[f"trainings/{name}"] = _TRAINING.replace("NODES", nodes).replace("NAME", name)
    for name, text in files.items():
        path = recipes / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _write_corpus(folder / "corpus")
    (folder / "code").mkdir()
    shutil.copy(EXAMPLE, folder / "code")
    return recipes


def _write_corpus(folder: Path, texts: int = 100) -> None:
    """Texts of a few hundred made-up words each, the same every time."""
    draw = random.Random(0)
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(800)]
    folder.mkdir()
    for number in range(texts):
        lines = [" ".join(draw.choices(vocabulary, k=12)) for _ in range(30)]
        (folder / f"{number:03d}.txt").write_text("\n".join(lines))
