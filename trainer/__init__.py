"""What runs on a node: shards, staging, the model, the loop, checkpoints, the ledger, the fence.

The ground floor. It imports no control plane (no Dagster, MLflow or Optuna: seconds of start-up each)
and can be started by hand: ``torchrun -m slipway.trainer config.json``.
"""
