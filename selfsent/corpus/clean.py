"""Take markup and debris out of raw text and cut it into sentences."""

import html
import re
import unicodedata

import sentencex
import xxhash

_TAGS = (
    "a|b|blockquote|br|center|code|dd|div|dl|dt|em|font|gallery|h[1-6]|hr|i|img|li|math|nowiki|ol|p|poem|pre|ref"
    "|references|s|small|span|strong|sub|sup|table|td|th|tr|tt|u|ul"
)
_MARKUP = re.compile(
    rf"(?P<tag></?(?:{_TAGS})\b[^<>\n]*>|<!--.*?-->)"  # tags that everybody knows; <x> in a formula stays
    r"|\[(?:https?|ftp)://[^\s\]]*(?: (?P<label>[^\]\n]*))?\]"  # [http://... label]
    r"|[ \t]\([\s,;]*\)",  # brackets that lost their content; those of a call() stay
    re.IGNORECASE | re.DOTALL,
)
# Control characters, soft hyphens, byte-order and direction marks, zero-width spaces, lone surrogates.
# The joiners U+200C and U+200D stay: Persian and the Indian scripts need them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ud800-\udfff]"
)
_LINES = re.compile(r"\r\n?|[\x0c\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n\t ]")  # other than these; sentencex fails on a no-break space after an initial
_BREAK = re.compile(r"(?<=[^\n])\n(?=[^\n])")  # one that is not part of an empty line
_CONTINUED = re.compile(r"[^\W\d_][,;]?[ \t]*\n[ \t]*([^\W\d_])")
# A "word" of a script that sets no spaces is one character.
_WORD = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[\\w'’-]*\\w[\\w'’-]*"
)


def clean(text: str) -> str:
    """Remove markup leftovers and invisible characters; every line end becomes a newline."""
    text = _INVISIBLE.sub("", _LINES.sub("\n", text))
    if not text.isascii():
        text = _SPACES.sub(" ", text)
    if "&" in text:
        text = _SPACES.sub(" ", _INVISIBLE.sub("", html.unescape(text)))
    if "<" in text or "[" in text or "(" in text:
        text = _MARKUP.sub(lambda match: " " if match["tag"] else match["label"] or "", text)
    return text


def one_line(text: str) -> str:
    """Make every run of white space a single space."""
    return " ".join(text.split())


def sentences(text: str, language: str) -> list[str]:
    """Cut cleaned text into sentences; a line end is a sentence end unless the text is hard-wrapped."""
    text = _unwrap(text)
    pieces = [line for segment in sentencex.segment(language, text) for line in segment.split("\n")]
    return [sentence for piece in pieces if (sentence := one_line(piece))]


def _unwrap(text: str) -> str:
    # In prose broken at a fixed width most lines go on in lower case; between paragraphs or items hardly any do.
    breaks = len(_BREAK.findall(text))
    if not breaks or 2 * sum(first.islower() for first in _CONTINUED.findall(text)) < breaks:
        return text
    return _BREAK.sub(" ", text)


def count_words(text: str) -> int:
    """Count words; in scripts without spaces, characters."""
    return text.count(" ") + 1 if text.isascii() else len(_WORD.findall(text))


def halves(text: str) -> tuple[str, str]:
    """Cut a text before its middle word."""
    starts = [match.start() for match in _WORD.finditer(text)]
    cut = starts[(len(starts) + 1) // 2]
    return text[:cut].strip(), text[cut:].strip()


def content_key(text: str) -> int:
    """Hash a text so that case, white space and Unicode variants do not matter."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return xxhash.xxh3_64_intdigest(" ".join(text.casefold().split()).encode())
