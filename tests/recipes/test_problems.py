"""Problems of recipes: each is reported with its place, its field, what was found and what is expected."""

import pytest

from tests.recipes.cases import cases
from tests.recipes.conftest import DATASET, SWEEP, TRAINING, Folder

pytestmark = pytest.mark.pure

DATASET_CASES = r"""
vocab_size: 4096 -> vocab_size: 256
    tokenizer.vocab_size: found 256, expected 257 or more

validation: 0.05 -> validation: 1
    split.validation: found 1, expected a number below 1

kind: stdlib -> kind: ftp
    source.kind: found "ftp", expected one of 'stdlib', 'directory', 's3'

kind: stdlib -> kind: directory
    -1 source.path: found nothing, expected text

kind: stdlib -> kind: stdlib\n  path: x
    +1 source.path: found an unknown field, expected one of include, exclude, kind

kind: stdlib -> kind: stdlib\n  include: ['*', 3]
    +1 source.include.1: found 3, expected text

tokenizer: -> cleaning:\n  patterns:\n    ticket: "("\ntokenizer:
    +2 cleaning.patterns.ticket: found "(", expected a regular expression of Python: missing ), unterminated subpattern

tokenizer: -> cleaning:\n  decontamination:\n    against: [{file: x, fields: []}]\ntokenizer:
    +2 cleaning.decontamination.against.0.fields: found [], expected 1 or more

tokenizer: -> cleaning:\n  decontamination:\n    against: [{file: x, fields: question}]\ntokenizer:
    +2 cleaning.decontamination.against.0.fields: found "question", expected a list

tokenizer: -> cleaning:\n  rules: {words_at_least: 100, words_at_most: 3}\ntokenizer:
    +1 cleaning.rules.words_at_most: found 3, expected 100 or more: the lower limit is 100

tokenizer: -> cleaning:\n  rules: {preset: gopher, mean_word_length_at_least: 12.5}\ntokenizer:
    +1 cleaning.rules.mean_word_length_at_least: found 12.5, expected 10 or less: the upper limit is 10

  kind: stdlib ->   include: []
    -1 source.kind: found nothing, expected the kind of this section
"""

TRAINING_CASES = r"""
registered_model: -> layout: {compile: 1}\nregistered_model:
    layout.compile: found 1, expected true or false

layers: 4 -> layers: "4"
    model.layers: found "4", expected a whole number

layers: 4 -> layers: 4.0
    model.layers: found 4.0, expected a whole number

layers: 4 -> layers: true
    model.layers: found true, expected a whole number

layers: 4 -> layers: 1_000
    model.layers: found "1_000", expected a whole number

layers: 4 -> layers: 0
    model.layers: found 0, expected a number above 0

layers: 4 -> layrs: 4\n  layers: 4
    model.layrs: found an unknown field (did you mean layers?), expected one of kind, layers, width, heads, kv_heads,
        hidden, rope_base, rope_scaling, positions, longest, norm, norm_epsilon, activation, bias, window, qk_norm,
        tied, head_features, attention

layers: 4 -> preset: gpt-2\n  layers: 4
    model.preset: found "gpt-2", expected one of gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-3.1-8b, llama-3.1-70b,
        llama-3.1-405b, mistral-7b, qwen2.5-7b, qwen3-8b

model: # -> model:\n  <<: 3 #
    +1 model.<<: found an unknown field, expected one of kind, layers, width, heads, kv_heads, hidden, rope_base,
        rope_scaling, positions, longest, norm, norm_epsilon, activation, bias, window, qk_norm, tied, head_features,
        attention

  layers: 4 ->   # none
    -1 model.layers: found nothing, expected a whole number

heads: 4 # d -> heads: 5 # d
    model.heads: found 5, expected a divisor of width (128)

learning_rate: 3e-3 -> learning_rate: 1e999
    optimizer.learning_rate: found Infinity, expected a finite number

learning_rate: 3e-3 -> learning_rate: fast
    optimizer.learning_rate: found "fast", expected a number

model: # -> model:\n  kind: rnn #
    +1 model.kind: found "rnn", expected one of decoder, encoder, resnet, vit, or a module's dotted name

model: # -> model:\n  kind: 3 #
    +1 model.kind: found 3, expected one of decoder, encoder, resnet, vit, or a module's dotted name

model: # -> model:\n  kind: nowhere.rnn #
    +1 model.kind: found "nowhere.rnn", expected a module with the classes Shape and Network, but importing it fails:
        ModuleNotFoundError: No module named 'nowhere'

model: # -> model:\n  kind: json.decoder #
    +1 model.kind: found "json.decoder", expected a module with the classes Shape and Network, but its Shape is no
        slipway.trainer.config.shapes.Shape that says what it reads

kv_heads: 2 # -> kv_heads: 2\n  kind: encoder #
    -0 model.kv_heads: found an unknown field (did you mean heads?), expected one of kind, layers, width,
        heads, hidden, masked

precision: fp32 -> precision: fp12
    run.precision: found "fp12", expected 'fp32', 'bf16', 'fp16' or 'fp8'

checkpoint:\n  every: 60 -> checkpoint: 60
    checkpoint: found 60, expected a section

checkpoint:\n  every: 60 -> checkpoint:
    checkpoint: found null, expected a section

max: 2 -> max: 0
    placement.nodes.max: found 0, expected 1 or more

min: 1, max: 2 -> min: 3, max: 2
    placement.nodes.max: found 2, expected 3 (min) or more

no_progress_seconds: 120 -> no_progress_seconds: 0
    recovery.no_progress_seconds: found 0, expected a number above 0

team:training -> someone
    owner: found "someone", expected team:<name> or an email address

registered_model: slipway-tiny-decoder -> registered_model: a/b
    registered_model: found "a/b", expected a name without spaces, quotes, /, \ or :

registered_model: slipway-tiny-decoder -> registered_model: bob's-model
    registered_model: found "bob's-model", expected a name without spaces, quotes, /, \ or :

registered_model: slipway-tiny-decoder -> registered_model: ..
    registered_model: found "..", expected a name without spaces, quotes, /, \ or :

"0 3 * * 0" -> "0 25 * * 0"
    retrain: found "0 25 * * 0", expected a cron string whose hour is * or 0 to 23 (with , - or /)

dataset: python-stdlib -> dataset: novels
    dataset: found "novels", expected the name of a dataset recipe (python-stdlib)

slipway: training/1 -> slipway: training/2
    slipway: found "training/2", expected training/1 (a newer Slipway reads that version)

slipway: training/1 -> slipway: sweep/1
    slipway: found "sweep/1", expected training/1 in this folder (sweep recipes lie in sweeps/)

slipway: training/1 -> slipway: 1
    slipway: found 1, expected training/1

dataset: python-stdlib -> name: other\ndataset: python-stdlib
    name: found "other", expected no such field: a recipe has the name of its file, here tiny-decoder

  layers: 4 ->   layers: 4\n  layers: 4
    +1 model.layers: found the field a second time, expected it once (it is on line 10 already)

owner: team:training -> owner: !secret team:training
    owner: found the tag !secret, expected a plain value

layers: 4 -> layers: !!int four
    model.layers: found "four", expected a whole number
"""

SWEEP_CASES = r"""
training: tiny-decoder # -> training: vast #
    training: found "vast", expected the name of a training recipe (tiny-decoder)

sampler: tpe -> sampler: best
    sampler: found "best", expected 'random', 'grid', 'quasi-random', 'tpe', 'gp' or 'cma-es'

eta: 2 -> eta: 1
    scheduler.eta: found 1, expected 2 or more

[20, 40, 80] -> [40, 20, 80]
    scheduler.rungs: found [40, 20, 80], expected steps that increase

[20, 40, 80] -> [20, 30, 80]
    scheduler.rungs.1: found 30, expected a multiple of validation.every of a trial (20)

run.steps: 80 -> run.steps: 100
    -4 scheduler.rungs: found [20, 40, 80], expected the last to be run.steps of a trial (100)

validation.every: 20 -> validation.every: 0
    trial.validation.every: found 0, expected a number that divides every rung, where trials are compared

run.steps: 80 -> run.length: 80
    trial.run.length: found an unknown parameter, expected one of run.steps, run.seed, run.precision,
        run.shuffle_shards, run.freeze

run.steps: 80 -> run.steps: -1
    trial.run.steps: found -1, expected a number above 0

run.steps: 80 -> run.steps: 80\n  model.width: 130
    -1 trial: found parameters that model.heads (4) does not fit, expected a divisor of width (130) there

optimizer.beta2: -> optimizer.beta3:
    space.optimizer.beta3: found an unknown parameter (did you mean beta2?), expected one of optimizer.kind,
        optimizer.learning_rate, optimizer.schedule, optimizer.warmup_steps, optimizer.final_fraction,
        optimizer.decay_fraction, optimizer.beta1, optimizer.beta2, optimizer.momentum, optimizer.weight_decay,
        optimizer.clip

optimizer.beta2: -> optimiser.beta2:
    space.optimiser.beta2: found an unknown parameter (did you mean optimizer?), expected <section>.<field>, the section
        one of model, batch, optimizer, run, checkpoint, validation, communication, mix, layout, storage, observation,
        evaluation, hardware, runtime, recovery

optimizer.beta2: -> beta2:
    space.beta2: found an unknown parameter, expected <section>.<field>, the section one of model, batch,
        optimizer, run, checkpoint, validation, communication, mix, layout, storage, observation, evaluation,
        hardware, runtime, recovery

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9, 1.5]}
    space.optimizer.beta2.choice.1: found 1.5, expected 0 or more, below 1

{choice: [0.9, 0.95, 0.99]} -> {choice: []}
    space.optimizer.beta2.choice: found [], expected 1 or more

{choice: [0.9, 0.95, 0.99]} -> {between: [0, 1]}
    space.optimizer.beta2.between: found an unknown field, expected one of loguniform, uniform, randint,
        choice, step, when

{choice: [0.9, 0.95, 0.99]} -> {}
    space.optimizer.beta2: found {}, expected exactly one of loguniform, uniform, randint, choice

[3e-4, 1e-2] -> [1e-2, 3e-4]
    space.optimizer.learning_rate.loguniform: found [0.01, 0.0003], expected [low, high] with low below high

[3e-4, 1e-2] -> [0, 1]
    space.optimizer.learning_rate.loguniform: found [0, 1], expected numbers above 0

[3e-4, 1e-2] -> [0.1]
    space.optimizer.learning_rate.loguniform.1: found nothing, expected a number

[3e-4, 1e-2] -> [1, 2, 3]
    space.optimizer.learning_rate.loguniform: found [1, 2, 3], expected a list of 2

[3e-4, 1e-2] -> 3
    space.optimizer.learning_rate.loguniform: found 3, expected a list

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9]}\n  model.width: {choice: [130]}
    +1 space.model.width.choice.0: found 130, expected a value that model.heads (4) fits: a divisor of width
        (130) there

optimizer.beta2: -> run.steps: {randint: [1, 2]}\n  optimizer.beta2:
    space.run.steps: found a parameter that the rungs decide, expected a parameter other than run.steps,
        validation.every

run.steps: 80 -> run.steps: 80\n  optimizer.beta2: 0.9
    -13 space.optimizer.beta2: found a parameter that `trial` sets too, expected it in only one of the two

seed: 0 -> seed: 0\nplacement: {ranks_per_node: 0}
    +1 placement.ranks_per_node: found 0, expected 1 or more

seed: 0 -> seed: 0\nplacement: {nodes: {min: 2, max: 1}}
    +1 placement.nodes.max: found 1, expected 2 (min) or more

seed: 0 -> seed: 0\nplacement: {ranks_per_node: 64}
    +1 placement: found nodes and ranks that batch.sequences (16) does not fit, expected 64 (a sequence for each rank)
        or more, with nodes: 1

seed: 0 -> seed: 0\nplacement: {ranks_per_node: 1, kubernetes: {resources: {nvidia.com/gpu: "8"}}}
    +1 placement.ranks_per_node: found 1 for pods with nvidia.com/gpu 8, expected a rank for each GPU;
        placement.kubernetes.resources gives a trial fewer: nvidia.com/gpu: "1"
"""


CASES = cases(DATASET, DATASET_CASES) + cases(TRAINING, TRAINING_CASES) + cases(SWEEP, SWEEP_CASES)


@pytest.mark.parametrize(("file", "old", "new", "down", "problem"), CASES, ids=[case[2] for case in CASES])
def test_a_wrong_value_is_reported_with_its_line_and_field(
    folder: Folder, file: str, old: str, new: str, down: int, problem: str
):
    line = folder.edit(file, old, new)
    assert folder.problems() == [f"{file}:{line + down}: {problem}"]


def test_all_problems_of_all_files_are_reported_at_once(folder: Folder):
    vocabulary = folder.edit(DATASET, "vocab_size: 4096", "vocab_size: many")
    layers = folder.edit(TRAINING, "layers: 4", "layers: four")
    steps = folder.edit(TRAINING, "steps: 300", "stepps: 300")
    eta = folder.edit(SWEEP, "eta: 2", "eta: 1")
    seed = folder.edit(SWEEP, "seed: 0", "seed: -1")
    assert folder.problems() == [
        f'{DATASET}:{vocabulary}: tokenizer.vocab_size: found "many", expected a whole number',
        f"{SWEEP}:{seed}: seed: found -1, expected 0 or more",
        f"{SWEEP}:{eta}: scheduler.eta: found 1, expected 2 or more",
        f'{TRAINING}:{layers}: model.layers: found "four", expected a whole number',
        f"{TRAINING}:{steps - 1}: run.steps: found nothing, expected a whole number",
        f"{TRAINING}:{steps}: run.stepps: found an unknown field (did you mean steps?), "
        "expected one of steps, seed, precision, shuffle_shards, freeze",
    ]


def test_a_dataset_with_a_mistake_is_not_reported_as_missing(folder: Folder):
    folder.write(DATASET, "slipway: [dataset/1\n")
    assert folder.problems() == [
        f"{DATASET}:2: found a mistake in the YAML (while parsing a flow sequence, "
        "expected ',' or ']', but got '<stream end>'), expected YAML"
    ]


def test_the_header_comes_first(folder: Folder):
    folder.edit(TRAINING, "slipway: training/1\n", "")
    line = folder.edit(TRAINING, "dataset: python-stdlib", "slipway: training/1\ndataset: python-stdlib")
    assert folder.problems() == [
        f"{TRAINING}:{line}: slipway: found this field further down, expected it as the first field"
    ]


def test_the_kind_of_a_recipe_without_a_header_is_not_guessed(folder: Folder):
    folder.write(DATASET, "description: x\n")
    assert folder.problems() == [f"{DATASET}:1: slipway: found nothing, expected dataset/1"]


@pytest.mark.parametrize(("content", "actual"), [("", "null"), ("- 1\n", "[1]"), ("text", '"text"')])
def test_a_file_that_is_no_recipe_is_reported(folder: Folder, content: str, actual: str):
    folder.write(DATASET, content)
    assert folder.problems() == [f"{DATASET}:1: found {actual}, expected a recipe that begins slipway: dataset/1"]


@pytest.mark.parametrize("content", [b"slipway: dataset/1\ndescription: \xff\n", b"slipway: dataset/1\nowner: \x07\n"])
def test_bytes_that_are_not_text_are_reported_with_their_line(folder: Folder, content: bytes):
    folder.write(DATASET, content)
    assert folder.problems() == [f"{DATASET}:2: found bytes that are not text, expected YAML in UTF-8"]


def test_an_alias_is_refused_so_that_every_value_has_one_line(folder: Folder):
    line = folder.edit(DATASET, "owner: team:data", "owner: &a [*a]")
    assert folder.problems() == [
        f"{DATASET}:{line}: found a mistake in the YAML (an alias; write the value out), expected YAML"
    ]


def test_a_list_as_a_key_is_refused(folder: Folder):
    line = folder.edit(DATASET, "owner: team:data", "owner: team:data\n[1, 2]: 3")
    assert folder.problems() == [f"{DATASET}:{line + 1}: found a list or a section as a key, expected a name"]
