"""Serving: what answers people's questions with a registered model, in processes of its own.

A front (`python -m slipway.serving`) takes requests and gives each to a worker (`slipway.serving.worker`), one for each
version that answers; on a cluster the workers are vLLM's, and the front is the same. What should answer is in records
on the durable tier (`slipway.serving.records`). It imports the trainer alone: no Dagster, no MLflow; a container that
serves has nothing else.
"""
