"""Matplotlib figures without a display, as PNG for the UI or as SVG for a page."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # matplotlib takes a second to import, so only the functions that draw import it
    from matplotlib.figure import Figure

SIZE = (6.4, 3.2)
"""Width and height in inches. With the first of `RESOLUTIONS` a figure fits the UI's metadata panel."""
RESOLUTIONS = (80, 64, 48, 32)
"""Dots per inch; the first resolution that keeps the PNG small enough is used."""
MOST_BYTES = 30_000
"""The largest PNG, because the event log stores it twice for each event."""
COLORS = 32
"""The number of colours of a PNG that would otherwise be too large."""


def new_figure(size: tuple[float, float] = SIZE) -> "Figure":
    """An empty figure, with its size in inches, outside pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def small_png(figure: "Figure") -> bytes:
    """A figure as PNG. If it is too large for the event log, it gets fewer colours, and then a lower resolution."""
    for resolution in RESOLUTIONS:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=resolution)
        if buffer.tell() <= MOST_BYTES:
            break
        buffer = _in_few_colors(buffer)
        if buffer.tell() <= MOST_BYTES:
            break
    return buffer.getvalue()


def _in_few_colors(png: io.BytesIO) -> io.BytesIO:
    """The same picture with a palette: many thin lines have hundreds of shades that nobody can distinguish."""
    from PIL import Image

    reduced = io.BytesIO()
    Image.open(png).convert("RGB").quantize(COLORS).save(reduced, format="png", optimize=True)
    return reduced


def svg(figure: "Figure", name: str) -> str:
    """A figure as the text of an SVG element, reproducible, with its labels as text.

    `name` distinguishes its ids from those of other figures on the same page.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    document = buffer.getvalue()
    return document[document.index("<svg") :]
