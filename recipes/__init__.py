"""Recipes: each YAML file is one recipe, which defines a group of assets. A new recipe needs no Python.

A recipe lies in `datasets/`, `suites/`, `trainings/` or `sweeps/`; the name of its file is its name, and its first
field says its kind and version, such as `slipway: training/1`. `slipway recipes new` begins one;
`slipway recipes check [FOLDER]` validates all of them and shows every problem at once: file, line, field, what was
found and what is expected.

An environment variable overrides a field, for every process that has it set:

    SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS=50
    SLIPWAY_TRAININGS__TINY_DECODER__RETRAIN=null
    SLIPWAY_SWEEPS__TINY_DECODER__TRIAL__OPTIMISER__CLIP=0.5
    SLIPWAY_SWEEPS__TINY_DECODER__SPACE__OPTIMISER__BETA2='{choice: [0.9, 0.95]}'

The parts are the folder, the recipe (hyphens as underscores) and the path of the field, in capitals, joined by two
underscores; the value is YAML. It is validated like the file, and a problem names the variable.
"""
