"""Statistics of corpus preparation: how many texts were read, kept and dropped, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from selfsent.text import clean

_EXAMPLES = 3  # of markup that are shown


@dataclass(kw_only=True)
class CorpusStatistics:
    """Counts of one preparation; ``texts`` is the sum of all dropped, held-out and kept texts."""

    files: int = 0  # files, hub datasets and demo corpora read
    documents: int = 0  # rows or lines in them
    empty_documents: int = 0  # of these, without a single word
    cleaned_documents: int = 0  # of these, with markup or invisible characters removed
    markup: int = 0  # pieces of markup that were removed: tags, scripts, comments, links
    markup_examples: Sequence[str] = ()  # the first of them that differ
    texts: int = 0  # sentences, lines or whole documents
    too_short: int = 0
    too_long: int = 0
    exact_duplicates: int = 0
    near_duplicates: int = 0
    held_out_documents: int = 0  # set apart for the label-free test
    held_out_texts: int = 0  # their texts
    held_out_until: int = 0  # all of them are among so many first documents, where that is less than half
    held_out_copies: int = 0  # copies of those in other documents
    surplus: int = 0  # beyond max_texts
    without_positive: int = 0  # in a corpus of pairs
    identical_pairs: int = 0  # pairs of a text with itself
    kept: int = 0
    max_length: int | None = None  # tokens to which texts are truncated
    median_length: int = 0  # tokens, special tokens included, before truncation
    long_length: int = 0  # the 95th percentile
    truncated: float = 0.0  # share of the kept texts
    unknown: float = 0.0  # share of tokens that are the unknown token
    examples: Sequence[tuple[str, str]] = ()  # near-duplicates: (kept, dropped)

    def take_markup(self, pieces: Sequence[str]) -> None:
        """Count pieces of markup that were removed, and keep examples."""
        self.markup += len(pieces)
        if pieces and len(self.markup_examples) < _EXAMPLES:
            shown = [*self.markup_examples, *(_shorten(clean.encodable(piece)) for piece in pieces)]
            self.markup_examples = list(dict.fromkeys(shown))[:_EXAMPLES]

    def markup_lines(self) -> list[str]:
        """Return what was removed as markup, for example; no line if nothing was."""
        head = f"{self.markup:,} pieces of markup were removed, for example:"
        return [head, *(f"  {piece}" for piece in self.markup_examples)] if self.markup else []

    def dropped(self) -> list[tuple[str, int]]:
        """Return (why, how many) for the texts that are not kept."""
        return [
            ("too short", self.too_short),
            ("too long", self.too_long),
            ("without a positive", self.without_positive),
            ("equal to their positive", self.identical_pairs),
            ("exact duplicates", self.exact_duplicates),
            ("near-duplicates", self.near_duplicates),
            ("held out", self.held_out_texts),
            ("copies of held-out texts", self.held_out_copies),
            ("beyond max_texts", self.surplus),
        ]

    def rows(self) -> list[tuple[str, int, str]]:
        """Return (what, how many, a note) for all that is not zero; what was dropped is indented by two spaces."""
        first = f", all among the first {self.held_out_until:,}" if self.held_out_until else ""
        rows = [
            ("documents read", self.documents, f"from {self.files} source{'s' * (self.files != 1)}"),
            ("  empty", self.empty_documents, ""),
            ("  cleaned", self.cleaned_documents, ""),
            ("  held out", self.held_out_documents, f"with {self.held_out_texts:,} texts{first}"),
            ("texts found", self.texts, ""),
            *((f"  {why}", count, "") for why, count in self.dropped()),
            ("texts kept", self.kept, ""),
        ]
        return [row for row in rows if row[1] or not row[0].startswith(" ")]

    def word_pieces(self) -> str:
        """Return a line on the lengths of the texts and the share that was truncated."""
        cut = f", {100 * self.truncated:.1f} % cut at {self.max_length}" if self.max_length else ""
        return (
            f"tokens per text: median {self.median_length}, 95th percentile {self.long_length}{cut}; "
            f"unknown {100 * self.unknown:.2f} %"
        )

    def lines(self) -> list[str]:
        """Return everything as aligned lines of plain text."""
        rows = self.rows()
        label = max(len(name) for name, _, _ in rows)
        number = max(len(f"{count:,}") for _, count, _ in rows)
        lines = [f"{name:<{label}}  {count:>{number},}  {note}".rstrip() for name, count, note in rows]
        lines.append(self.word_pieces())
        lines += self.markup_lines()
        for kept, dropped in self.examples:
            lines += ["near-duplicate, for example:", f"  kept     {_shorten(kept)}", f"  dropped  {_shorten(dropped)}"]
        return lines


def _shorten(text: str, width: int = 96) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
