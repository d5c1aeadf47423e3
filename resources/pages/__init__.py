"""Pages: a self-contained HTML page for each training, sweep and dataset, and the webserver that shows them.

    curves    interactive curves by uPlot, whose script is part of the page (static/)
    training  the page of a training           costs     rank-hours and their price
    index     what there is                    reading   what a training's page is made of, read as it grows
    routes    serves pages, read-only          webserver Dagster's webserver with these routes beside it

Nothing here imports Dagster but `webserver`.
"""
