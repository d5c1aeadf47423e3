"""Metrics of the platform: facts that it reads anyway, exported for Prometheus (docs/monitoring.md).

catalog     what is exported: each metric with its type, its sentence and its labels
facts       what is read for one scrape, as plain values
expose      the samples that follow from the facts. Pure
trainings   the facts of trainings; those that are over are read once
platform    the facts of nodes, sweeps, tiers and served models
dagster     the facts of Dagster: sensors' ticks, daemons, runs, the event log
serve       the exporter of a platform
"""
