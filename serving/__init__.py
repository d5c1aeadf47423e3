"""Serving: processes that answer requests with a registered model.

A front (`python -m slipway.serving`) receives the requests and passes each to a worker (`slipway.serving.worker`).
Every version has a worker of its own; on a cluster the workers are vLLM pods behind the same front. Records on the
durable tier say which versions should answer (`slipway.serving.records`). Serving imports only the trainer, without
Dagster and MLflow, because a serving container has nothing else installed.
"""
