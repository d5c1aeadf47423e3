"""Datasets: from source files to immutable snapshots of shards, for texts and for images.

    reading    sources, their files, and the documents in them
    cleaning   normalisation, rules, masks, near-duplicates, contamination of texts
    building   the tools of every build: scratch folder, log, step cache, workers
    documents  extraction, the documents table and its step, for both kinds
    snapshots  the snapshot step, packing, pointer, history, difference and checks, for both kinds
    texts      what only texts have        images   what only images have

`kinds` names the two kinds, `assets` makes a dataset's assets in Dagster, `garbage` removes unused files.
"""
