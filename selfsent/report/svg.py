"""Matplotlib figures as inline SVG that takes its colours and its letters from the page.

Colours are drawn as the stand-ins below and written out as CSS variables, so that one drawing serves light, dark and
paper.  Identifiers are made unique, because several drawings share one page.
"""

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from selfsent.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 360, 250  # points; a panel is never shown narrower than a phone, so its letters stay readable
SERIES = 6
INK, SOFT, FAINT, PAPER = "#010101", "#020202", "#030303", "#040404"
Dash = str | tuple[int, tuple[float, ...]]
DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5.0, 2.0)),
    (0, (1.2, 1.6)),
    (0, (6.0, 2.0, 1.0, 2.0)),
    (0, (3.0, 1.0)),
    (0, (8.0, 3.0, 1.0, 2.0, 1.0, 2.0)),
)
MARKERS = ("o", "s", "^", "D", "v", "P")

_SPACE = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_LEFT_OUT = (f"{{{_SPACE}}}metadata", f"{{{_SPACE}}}style")  # the latter would reach the whole page, which has its own


def colour(number: int) -> str:
    """Return the stand-in of a series' colour."""
    return f"#1010{number % SERIES:02x}"


def dash(number: int) -> Dash:
    """Return the dashes of a series; the seventh has the first's colour and other dashes."""
    return DASHES[(number + number // SERIES) % SERIES]


def marker(number: int) -> str:
    """Return the marker of a series."""
    return MARKERS[(number + number // SERIES) % SERIES]


_VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", FAINT: "var(--faint)", PAPER: "var(--paper)"} | {
    colour(number): f"var(--c{number})" for number in range(SERIES)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.labelcolor": INK,
    "figure.facecolor": "none",
    "path.simplify": True,
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure of the page."""

    svg: str
    caption: str  # says what to see


@contextmanager
def panel(*, height: int = HEIGHT) -> "Iterator[tuple[Figure, Axes]]":
    """Give the figure and axes of one panel, in the page's style.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"a report needs matplotlib ({error}): pip install matplotlib") from error
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.add_subplot()


def drawn(
    figure: "Figure", name: str, caption: str, *, alt: str = "", titles: Mapping[str, Sequence[str]] | None = None
) -> Drawing:
    """Write a figure as inline SVG.

    Args:
        name: a word that no other figure of the page has.
        alt: what is read aloud in place of the figure; the caption unless given; with neither, it is decoration.
        titles: by the gid of a scatter, the text of each of its points, shown on hover.
    """
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in [c for c in parent if c.tag in _LEFT_OUT]:
            parent.remove(child)
    for gid, texts in (titles or {}).items():
        _entitle(root, gid, texts)
    for element in root.iter():
        _adopt(element, name)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    if alt or caption:
        root.set("role", "img")
        root.set("aria-label", alt or caption)
    else:
        root.set("aria-hidden", "true")
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SPACE}}}")  # inside HTML an svg needs no namespace
    return Drawing(svg=ElementTree.tostring(root, encoding="unicode"), caption=caption)


def _entitle(root: ElementTree.Element, gid: str, texts: Sequence[str]) -> None:
    groups = [group for group in root.iter(f"{{{_SPACE}}}g") if group.get("id") == gid]
    points = [use for group in groups for use in group.iter(f"{{{_SPACE}}}use")]
    assert len(points) == len(texts), f"{gid}: {len(points)} points for {len(texts)} texts"
    for point, text in zip(points, texts, strict=True):
        ElementTree.SubElement(point, f"{{{_SPACE}}}title").text = text


def _adopt(element: ElementTree.Element, name: str) -> None:
    """Take colours and letters from the page, and keep identifiers apart."""
    if element.get("id"):
        element.set("id", f"{name}-{element.get('id')}")
    link = element.attrib.pop(f"{{{_LINK}}}href", None)
    if link:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    if element.get("clip-path"):
        element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{name}-"))
    style = element.get("style")
    if style:
        for stand_in, variable in _VARIABLES.items():
            style = style.replace(stand_in, variable)
        element.set("style", re.sub(r"font-family:[^;]*;?\s*", "", style))
    if element.get("d"):
        element.set("d", " ".join(element.attrib["d"].split()))
    element.text = (element.text or "").strip() or None
    element.tail = None
