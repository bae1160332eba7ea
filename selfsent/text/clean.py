"""Remove markup leftovers from raw text and split it into sentences."""

import html
import re
import unicodedata
from itertools import pairwise

import sentencex
import xxhash

_LINK = re.compile(r"\[(?:https?|ftp)://[^\s\]]{0,2000}(?: (?P<label>[^\]\n]{0,500}))?\]")  # [http://... label]
_EMPTY_BRACKETS = re.compile(r"[ \t]\([\s,;]*\)")  # whose content was markup; those of a call() stay
# Control characters, soft hyphens, byte-order and direction marks, zero-width spaces, lone surrogates.
# The joiners U+200C and U+200D stay: Persian and the Indian scripts need them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ud800-\udfff]"
)
_LINES = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n\t ]")  # all others; sentencex fails on a no-break space after an initial
_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|\w+);")  # html.unescape takes "&copy=2" of an address for one, too
_EMPTY_LINES = re.compile("\0\0+")
_STOP = re.compile("[。！？][”’』」）]*")
_LONG_LINE = 5_000  # characters; sentencex takes the square of a line of Chinese or Japanese
_NARROWEST = 30  # columns of hard-wrapped prose
_FULL = 0.85  # of the width, with the word that would not have fitted
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
SPELLED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # of these, those with letters: Thai to Khmer
_LETTERS_A_WORD = 4
_WORD = re.compile(rf"{_UNSPACED.pattern}|(?:(?!{_UNSPACED.pattern})\S)+")
# Vowel signs of the Indian scripts and of Arabic and Hebrew continue a word, and so does the zero-width joiner; Python
# counts none of them among the letters.
_SIGNS = "".join(
    chr(code)
    for code in (*range(0x300, 0x2000), *range(0xA600, 0xAC00))
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
_LETTER = rf"(?!{_UNSPACED.pattern})[^\W_]"
_LETTERS = re.compile(rf"{_UNSPACED.pattern}|{_LETTER}(?:{_LETTER}|[{_SIGNS}\u200d])*")
_PLAIN_LETTERS = re.compile(r"[^\W_]+")


def clean_text(text: str, taken: list[str] | None = None) -> str:
    """Remove markup and invisible characters; every line end becomes a newline.

    Escaped markup is text: ``&lt;table&gt;`` becomes ``<table>``.

    Args:
        taken: is given the pieces of markup that were removed.
    """
    taken = [] if taken is None else taken
    if "<" in text:
        from selfsent.text.markup import find_markup  # whose parser of HTML is slow to import, and seldom needed

        kept, start = [], 0
        for begin, end in find_markup(text):
            kept.append(text[start:begin])
            taken.append(text[begin:end])
            start = end
        text = " ".join([*kept, text[start:]])
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if not (text.isascii() and text.replace("\n", "").isprintable()):
        text = _SPACES.sub(" ", _INVISIBLE.sub("", _LINES.sub("\n", text)))
    if "[" in text:
        taken += (match[0] for match in _LINK.finditer(text))
        text = _LINK.sub(lambda match: match["label"] or "", text)
    if "()" in text or "(," in text or "(;" in text or "( " in text:
        text = _EMPTY_BRACKETS.sub("", text)
    return text


def encodable(text: str) -> str:
    """Replace lone surrogates by question marks: JSON can hold them, and neither UTF-8 nor a tokenizer takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def one_line(text: str) -> str:
    """Replace every run of white space by a single space."""
    return " ".join(text.split())


def sentences(text: str, language: str) -> list[str]:
    """Split cleaned text into sentences; a line end is a sentence end unless the text is hard-wrapped."""
    text = _with_breaks(_unwrap(text))
    pieces = [line for segment in sentencex.segment(language, text) for line in segment.split("\n")]
    return [sentence for piece in pieces if (sentence := one_line(piece))]


def _with_breaks(text: str) -> str:
    """Break long lines of a script without spaces behind full stops."""
    if len(text) <= _LONG_LINE or not _STOP.search(text):
        return text
    pieces = []
    for line in text.split("\n"):
        begin = 0
        for stop in _STOP.finditer(line) if len(line) > _LONG_LINE else ():
            if stop.end() - begin >= _LONG_LINE:
                pieces.append(line[begin : stop.end()])
                begin = stop.end()
        pieces.append(line[begin:])
    return "\n".join(pieces)


def _unwrap(text: str) -> str:
    # In hard-wrapped prose most lines continue in lower case; paragraphs and list items rarely do.  Its lines are full:
    # the next word would not have fitted.  Lines of chats, subtitles and songs end where they like.
    lines = [line.strip() for line in text.split("\n")]
    breaks = [(above, below) for above, below in pairwise(lines) if above and below]
    continued = [pair for pair in breaks if pair[0][-1] not in ".:!?" and pair[1][0].islower()]
    if not breaks or 2 * len(continued) < len(breaks):
        return text
    longest = sorted(map(len, filter(None, lines)))
    width = longest[-1 - max(len(breaks) > 2, len(breaks) // 10)]  # a single line may be longer: an address
    full = sum(len(above) + len(below.split(None, 1)[0]) >= _FULL * width for above, below in continued)
    if width < _NARROWEST or 2 * full < len(continued):
        return text
    return _EMPTY_LINES.sub("\n", "\n".join(lines).replace("\n", "\0")).replace("\0", " ")


def count_words(text: str) -> int:
    """Count words; in scripts without spaces, characters, or where these are letters, a word for every four."""
    if text.isascii() or not _UNSPACED.search(text):
        return len(text.split())
    spelled = SPELLED.findall(text)
    letters = sum(unicodedata.category(sign)[0] == "L" for sign in spelled)
    return len(_WORD.findall(text)) - len(spelled) + -(-letters // _LETTERS_A_WORD)


def text_halves(text: str) -> tuple[str, str]:
    """Split a text before its middle word."""
    starts = [match.start() for match in _WORD.finditer(text)]
    cut = starts[(len(starts) + 1) // 2]
    return text[:cut].strip(), text[cut:].strip()


def words(text: str) -> list[str]:
    """Return the words of a text for lexical matching: case-folded, without punctuation."""
    if text.isascii():
        return _PLAIN_LETTERS.findall(text.lower())
    return _LETTERS.findall(unicodedata.normalize("NFKC", text).casefold())


def with_gaps(text: str) -> list[str]:
    """Split a single line into words, each with the space after it, so that they join to the text again."""
    starts = [match.start() for match in _WORD.finditer(text)]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def content_key(text: str) -> int:
    """Hash a text regardless of case, white space and Unicode variants."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return xxhash.xxh3_64_intdigest(" ".join(text.casefold().split()).encode())
