"""Find markup in raw text: tags of HTML, scripts, styles and comments, and none of what only looks like it."""

import re
from collections import defaultdict
from html.parser import HTMLParser

_ELEMENTS = frozenset(  # of the HTML standard, those that it has given up, and what is left of wikis
    re.findall(
        r"\w+",
        "a abbr acronym address area article aside audio b base bdi bdo big blockquote body br button canvas "
        "caption center cite code col colgroup data datalist dd del details dfn dialog dir div dl dt em embed "
        "fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i "
        "iframe img input ins kbd label legend li link main map mark marquee math menu meta meter nav nobr noframes "
        "noscript object ol optgroup option output p param picture pre progress q rp rt ruby s samp script search "
        "section select slot small source span strike strong style sub summary sup svg table tbody td template "
        "textarea tfoot th thead time title tr track tt u ul var video wbr gallery nowiki poem ref references",
    )
)
_EMPTY = frozenset(("br", "hr", "wbr", "nowiki", "references"))  # that say something without content and attributes
_ENDLESS = frozenset(("p", "li", "dd", "dt", "td", "th", "tr", "tbody", "thead", "tfoot"))  # without end tag, too
_UNREAD = {name: re.compile(rf"</{name}[^<>]*>", re.IGNORECASE) for name in ("script", "style")}  # of code
_COMMENT = 5_000  # characters; or what is opened many times and never closed would take hours


class _Tag(HTMLParser):
    """The tag with which a piece of text begins; its name is "" if it is none of an element that is known."""

    def __init__(self, piece: str) -> None:
        super().__init__()
        self.name, self.raw, self.closes, self.stands_alone = "", "", False, False
        self._piece = piece
        self.feed(piece)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a start tag, which stands alone if no end tag needs to say that it is markup: ``Option<U>`` is none."""
        if self.raw or tag not in _ELEMENTS:
            return
        self.name, self.raw = tag, self.get_starttag_text() or ""
        known = bool(attrs) or tag in _EMPTY or (tag in _ENDLESS and self.raw.islower())  # Pair<P> is in capitals
        self.stands_alone = known and all(value is not None and key[0].isalpha() for key, value in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag that ends itself."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Take an end tag."""
        if not self.raw and tag in _ELEMENTS:
            self.name, self.raw, self.closes = tag, self._piece[: self._piece.index(">") + 1], True


def find_markup(text: str) -> list[tuple[int, int]]:
    """Return from where to where a text is markup: tags of HTML, scripts, styles and comments.

    A start tag is markup if its end tag follows, or if it stands alone.
    """
    spans: list[tuple[int, int]] = []
    opened: dict[str, list[tuple[int, int]]] = defaultdict(list)
    unread = dict(_UNREAD)
    begin = text.find("<")
    while begin >= 0:
        after = text.find("<", begin + 1)
        declared = text[begin : begin + 9].lower() == "<!doctype"
        closing = "-->" if text.startswith("<!--", begin) else ">" if declared else ""
        if closing:
            end = text.find(closing, begin + 4, begin + _COMMENT)
            if end > 0:
                spans.append((begin, end + len(closing)))
                after = text.find("<", end)
        elif text[begin + 1 : begin + 2].isalpha() or text.startswith("</", begin):
            tag = _Tag(text[begin : after if after > 0 else len(text)])
            span = (begin, begin + len(tag.raw))
            code = None if tag.closes else unread.pop(tag.name, None)  # or what never ends is searched for again
            if code and (code_end := code.search(text, span[1])):
                unread[tag.name] = code
                spans.append((begin, code_end.end()))
                after = text.find("<", code_end.end())
            elif tag.closes or tag.stands_alone:
                spans += [span, *opened[tag.name][-1:]]
                del opened[tag.name][-1:]
            elif tag.name:
                opened[tag.name].append(span)
        begin = after
    return sorted(spans)
