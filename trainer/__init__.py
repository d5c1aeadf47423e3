"""The code that runs on a node: shards, staging, the model, the loop, checkpoints, the ledger, the fence.

It does not import the control plane (no Dagster, MLflow or Optuna: seconds of start-up each), and can be started by
hand: ``torchrun -m slipway.trainer config.json``. Read `slipway.trainer.loop` first: `Trainer.train_step` is the step.
"""
