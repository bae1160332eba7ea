"""Read a page back as a person or a browser would."""

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """The tables, the words and the attributes of a page."""

    def __init__(self, html):
        super().__init__()
        self.html = html
        self.cells = []  # (data-column, data-value, text, row label)
        self.attributes = []
        self.scripts = 0
        self.words = []
        self._cell = self._row = None
        self._skipped = 0
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.attributes += [(tag, name, value) for name, value in attrs.items()]
        self.scripts += tag == "script"
        self._skipped += tag in ("script", "style")
        if tag == "th" and attrs.get("scope") == "row":
            self._row = []
        if tag == "td" and "data-value" in attrs:
            self._cell = (attrs["data-column"], float(attrs["data-value"]), [])

    def handle_endtag(self, tag):
        self._skipped -= tag in ("script", "style")
        if tag == "td" and self._cell:
            column, value, words = self._cell
            self.cells.append((column, value, words, " ".join(self._row or [])))
            self._cell = None

    def handle_data(self, data):
        if self._skipped or not data.strip():
            return
        self.words.append(data)
        if self._cell:
            self._cell[2].append(data.strip())
        elif self._row is not None and not self.cells_open():
            self._row.append(data.strip())

    def cells_open(self):
        return self._cell is not None

    def external(self):
        """Return what a browser would fetch from elsewhere."""
        fetched = [
            (tag, name, value)
            for tag, name, value in self.attributes
            if name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href")
            and value is not None
            and not value.startswith("#")
        ]
        return fetched + re.findall(r"@import[^;]*|url\((?![\"']?#)[^)]*\)|fetch\(|XMLHttpRequest|import\(", self.html)
