"""The report of a sweep: the cost of its trials, their results, and the certainty of these.

    results     the whole report as plain values
    rungs       what each rung cost and saved        compared    the best trial, the next one, the recipe as written
    importance  which parameters decide              pictures    curves, parallel coordinates, importance, rungs
    text        the report as Markdown               page        the report as one HTML page
    report_file the page in the sweep's folder, written while the sweep runs

All but `report_file` are pure: the same log gives the same report.
"""
