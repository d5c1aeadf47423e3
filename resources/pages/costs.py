"""The cost page: the rank-hours of trainings and trials in the last days, by day, team, recipe, cause and sweep. Pure.

Each table shows the rank-hours on on-demand and on spot nodes and, if prices are set, the money, also for the case that
all nodes had been of one kind.
"""

from collections.abc import Callable, Iterable, Iterator
from html import escape

from slipway.resources import html_layout
from slipway.resources.pages import training
from slipway.resources.trainings import spending
from slipway.resources.trainings.accounts import Prices
from slipway.resources.trainings.spending import Spending, SpentLine, SpentSum
from slipway.trainer.record.accounting import buckets

PERIODS = (7, 30, 90, 365)
"""The periods in days that the page offers."""
MOST = 20
"""The maximum number of rows of a table; the other rows are summed up in one."""
MEANING = (
    "A rank-hour is one hour of one GPU with its share of the node, or of one process without a GPU. Time in which a "
    "training waits for its start, is queued or is stopped does not count. Days are in UTC. If prices are set, the "
    "page also shows what the same hours would have cost on nodes of one kind only."
)
NO_PRICES = (
    "This page shows no money, since no prices are set. Set them in `prices` of the platform's settings, or of "
    "`costs.yaml` in the home of an embedded instance (docs/platform.md)."
)
PERSON = "a person, or its first start"


def html(totals: Spending, days: int, prices: Prices | None) -> str:
    """The page of the last `days`, including today."""
    return html_layout.page(f"Costs of {days} days", _body(totals, days, prices), nav=training.NAV[:-1])


def _body(totals: Spending, days: int, prices: Prices | None) -> Iterator[str]:
    others = " · ".join(html_layout.link(f"{period} days", f"?days={period}") for period in PERIODS if period != days)
    yield f"<h1>Costs of the last {days} days</h1>"
    yield f'<p class="quiet">Since {totals.since} (UTC). Other periods: {others}.</p>'
    for problem in totals.unreadable:
        yield html_layout.paragraph(f"Not included, because it could not be read: {problem}", "warning")
    if prices is None:
        yield f'<p class="warning">{html_layout.worded(NO_PRICES)}</p>'
    if not totals.lines:
        yield html_layout.paragraph("No training used a GPU or processor in this period.", "quiet")
        return
    [overall] = spending.sums(totals.lines, lambda line: "in all", prices)
    yield html_layout.tiles(_tiles(overall, prices))
    yield html_layout.paragraph(MEANING, "quiet")
    yield html_layout.section("days", "By day", _by_day(totals, prices))
    for id, title, head, what in SECTIONS:
        yield html_layout.section(id, title, _table(head, spending.sums(totals.lines, what, prices), overall, prices))
    taken = spending.sums(totals.interruptions, lambda line: line.cause.replace("_", " "), prices)
    yield html_layout.section("interruptions", "Lost to interruptions", _interruptions(taken, overall, prices))


def _trial(line: SpentLine) -> str:
    return line.training if line.subject.trial is not None else ""


def _alone(line: SpentLine) -> str:
    return "" if line.subject.sweep else line.training


SECTIONS: tuple[tuple[str, str, str, Callable[[SpentLine], str]], ...] = (
    ("teams", "By team", "team", lambda line: line.subject.team or "no team"),
    ("recipes", "By recipe", "recipe", lambda line: line.subject.recipe or "unknown"),
    ("causes", "By reason for the start", "cause", lambda line: line.subject.cause or PERSON),
    ("uses", "By use of time", "spent on", lambda line: buckets.TITLES.get(line.bucket, line.bucket)),
    ("trainings", "Trainings", "training", _alone),
    ("sweeps", "Sweeps with all their trials", "sweep", lambda line: line.subject.sweep),
    ("trials", "Trials", "trial", _trial),
)
"""The id, the title, the head of the first column, and the function that gives a line's row."""


def _tiles(overall: SpentSum, prices: Prices | None) -> Iterator[tuple[str, str]]:
    yield "rank-hours", _hours(overall.rank_hours)
    yield "of them on spot nodes", f"{overall.spot / overall.rank_hours:.0%}" if overall.rank_hours else "-"
    if prices is not None:
        yield f"{prices.currency} spent", _money(overall.money)
        yield f"{prices.currency} if all nodes were on demand", _money(overall.all_on_demand)
        yield f"{prices.currency} if all nodes were spot", _money(overall.all_on_spot)


def _head(first: str, prices: Prices | None) -> list[str]:
    money = [prices.currency, "all on demand", "all on spot"] if prices else []
    return [first, "rank-hours on demand", "on spot", *money, "share"]


def _row(name: str, row_sum: SpentSum, overall: SpentSum, prices: Prices | None) -> list[str]:
    money = [row_sum.money, row_sum.all_on_demand, row_sum.all_on_spot] if prices else []
    share = row_sum.rank_hours / overall.rank_hours if overall.rank_hours else 0.0
    return [name, _hours(row_sum.on_demand), _hours(row_sum.spot), *map(_money, money), _bar(share)]


def _table(first: str, sums: list[SpentSum], overall: SpentSum, prices: Prices | None) -> Iterator[str]:
    """A table of the largest sums; empty if there are none."""
    rows = [_row(_named(first, row_sum.what), row_sum, overall, prices) for row_sum in sums[:MOST]]
    if len(sums) > MOST:
        rest = _together(f"{len(sums) - MOST:,} more", sums[MOST:])
        rows.append(_row(rest.what, rest, overall, prices))
    if rows:
        yield html_layout.table(_head(first, prices), rows)


def _by_day(totals: Spending, prices: Prices | None) -> Iterator[str]:
    """Each day with costs, the newest first, with its share of the busiest day."""
    sums = sorted(spending.sums(totals.lines, lambda line: str(line.day), prices), key=lambda day_sum: day_sum.what)
    most = max(sums, key=lambda day_sum: day_sum.rank_hours)
    yield html_layout.table(
        [*_head("day", prices)[:-1], "of the busiest day"],
        [_row(_unbroken(day_sum.what), day_sum, most, prices) for day_sum in sums[::-1]],
    )


def _interruptions(taken: list[SpentSum], overall: SpentSum, prices: Prices | None) -> Iterator[str]:
    if taken:
        yield html_layout.paragraph("By cause, for these trainings, on any day.", "quiet")
        yield from _table("cause", taken, overall, prices)
    else:
        yield html_layout.paragraph("None of these trainings was interrupted.", "quiet")


def _together(name: str, sums: Iterable[SpentSum]) -> SpentSum:
    parts = list(sums)
    names = ("money", "all_on_demand", "all_on_spot")
    money = [sum(getattr(part, name) for part in parts) for name in names] if parts[0].money is not None else [None] * 3
    return SpentSum(name, sum(part.on_demand for part in parts), sum(part.spot for part in parts), *money)


def _named(first: str, name: str) -> str:
    """The name of a row; for a training or a sweep, with a link to its page."""
    if first == "training":
        return html_layout.link(name, training.address(name))
    if first == "sweep":
        return html_layout.link(name, f"{training.ROOT}/sweeps/{name}")
    return name


def _bar(share: float) -> html_layout.Markup:
    meter = f'<meter max="1" value="{min(share, 1.0):.4f}" aria-hidden="true"></meter>'
    return html_layout.Markup(f'<span style="white-space: nowrap">{meter} {share:.1%}</span>')


def _unbroken(text: str) -> html_layout.Markup:
    return html_layout.Markup(f'<span style="white-space: nowrap">{escape(text)}</span>')


def _hours(hours: float) -> str:
    if not hours:
        return "-"
    if hours >= 100:
        return f"{hours:,.1f}"
    return f"{hours:.2f}" if hours >= 0.005 else "<0.01"


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.2f}"
