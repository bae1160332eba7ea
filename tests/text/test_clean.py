"""Markup goes, prose stays, and sentences end where a reader would end them."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.text import clean, markup


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("the sky,<br>\nthe sea", "the sky, \nthe sea"),
        ("a <ref name='x'>note</ref> b", "a  note  b"),
        ("Saranyu (; ) sings in Mexico ().", "Saranyu sings in Mexico."),
        ("call close() and List<x> if a < b > c", "call close() and List<x> if a < b > c"),
        ("see [http://a.org/b] and [https://c.org its page].", "see  and its page."),
        ("http://x.org/?a=1&copy=2&reg=3 &#233;&#xE9;", "http://x.org/?a=1&copy=2&reg=3 éé"),
        ("16\xa0mm &amp; 3&nbsp;km", "16 mm & 3 km"),
        ("zero\u200bwidth\ufeff soft\xadhyphen\x07", "zerowidth softhyphen"),
        ("one\x0btwo\x1dthree", "one\ntwo\nthree"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("&lt;table&gt; and &lt;b&gt;x&lt;/b&gt;", "<table> and <b>x</b>"),
        ('<a title="1>0" href=x>z</a><IMG SRC=\'a\'\nALT="b">', " z  "),
        ("<!DOCTYPE html><html><p>One<p>Two<td>3<br/>4</html>", "   One Two 3 4 "),
        ("<script>a</script>b<script>c</script>", " b "),
        ("x <script>if (a<b) { s = '<i>' + \"<!--\" }</SCRIPT > y<style>p > a { b: c }</style>", "x   y "),
        ("<div class='a'> of a line, and of another </div>", "  of a line, and of another  "),
    ],
)
def test_debris_is_removed_and_text_is_not(raw, plain):
    assert clean.clean_text(raw) == plain


@pytest.mark.parametrize(
    "text",
    [
        *("Either<A, B>", "Option<U>", "Map<S, List<U>>", "Pair<P>", "Box<Option>", "fn f<B: Clone>(b: B)"),
        *("std::vector<int>", "a < b and c > d", "x <b and c> d", "for (i=0; i<p && p>3;)", "if a<b>c", "i <3 u"),
        *("<jane@example.org>", "<a@example.org>", "<https://a.org/b>", "cp <source> <s> [<option>]", "the <b> tag"),
        *('<ticket id="1">x</ticket>', "<dependency>\n<T>x</T>\n</dependency>"),
        *("a <script> tag", "<!-- that never ends", "<![CDATA[ x", "<?php", "</", "<"),
    ],
)
def test_what_is_not_markup_for_a_reader_of_html_stays(text):
    taken = []
    assert clean.clean_text(f"{text} <hr> x", taken) == f"{text}   x"
    assert taken == ["<hr>"]


def test_what_is_opened_and_never_closed_is_searched_for_once(monkeypatch):
    """Or a text of scripts that never end would take the square of its length."""
    searched = []
    end = SimpleNamespace(search=lambda text, start: searched.append(start))
    monkeypatch.setattr(markup, "_UNREAD", {"script": end})
    clean.clean_text("<script>" * 50)
    assert searched == [8]


def test_what_was_removed_is_listed():
    taken = []
    clean.clean_text("a<br>b <!-- c --> <script>d</script> [http://e.org f] Option<U>", taken)
    assert taken == ["<br>", "<!-- c -->", "<script>d</script>", "[http://e.org f]"]


def test_sentences_end_where_a_reader_ends_them():
    text = 'Mr. J. R. Smith (b. 1950) met the U.S. Army at 3 p.m. there. "Is it so?" he asked. It cost $3.50.'
    assert clean.sentences(text, "en") == [
        "Mr. J. R. Smith (b. 1950) met the U.S. Army at 3 p.m. there.",
        '"Is it so?" he asked.',
        "It cost $3.50.",
    ]


def test_a_line_end_is_a_sentence_end():
    assert clean.sentences("Wales\nBoxing:\nThe cat  sat.", "en") == ["Wales", "Boxing:", "The cat sat."]


def test_hard_wrapped_prose_is_joined_and_its_paragraphs_are_not():
    text = (
        "The old cat sat on the mat and looked at\nthe moon that stood above the river. Then\nit slept\n\n"
        "A dog came in from the yard and barked\nat it."
    )
    assert clean.sentences(text, "en") == [
        "The old cat sat on the mat and looked at the moon that stood above the river.",
        "Then it slept",
        "A dog came in from the yard and barked at it.",
    ]


def test_a_long_address_does_not_hide_that_a_short_mail_is_wrapped():
    text = "The update of last monday broke the page\nwhere people log in, so that nobody of us\ncould read a ticket.\n"
    text += f"See https://example.org/{'x' * 90} for what\nthe others found."
    assert len(clean.sentences(text, "en")) == 2


def test_lines_that_end_where_they_like_are_sentences_of_their_own_in_lower_case_too():
    lines = [
        "hey, are you there",
        "yes",
        "the update broke the login page again",
        "which one",
        "the one of monday, i think",
    ]
    assert clean.sentences("\n".join(lines), "en") == lines


def test_markup_has_a_bounded_length():
    """Or what is opened thousands of times and never closed would be searched to the end of the text each time."""
    for opened, closed in (("<!--", "-->"), ("[http://a.org ", "]")):
        assert clean.clean_text(f"{opened}{'x' * 400}{closed}") in (" ", "x" * 400)
        assert clean.clean_text(f"{opened}{'x' * 6000}{closed}").startswith(opened)


def test_chinese_is_split_and_its_words_are_counted_by_character():
    assert clean.sentences("今天天气很好。我们去公园吧。", "zh") == ["今天天气很好。", "我们去公园吧。"]
    assert clean.count_words("我们去 park") == 4


def test_a_long_line_of_chinese_is_split_as_its_parts_are():
    line = "".join(f"今天第{number}天天气很好。“我们去公园吧！”他说。" for number in range(1_000))
    assert len(line) > 4 * 5_000
    parts = [f"今天第{number}天天气很好。“我们去公园吧！”他说。" for number in range(1_000)]
    assert clean.sentences(line, "zh") == [one for part in parts for one in clean.sentences(part, "zh")]


def test_words_are_what_spaces_part():
    assert clean.count_words("ฉันลืมรหัสผ่านของฉัน") == 4  # 15 letters, the signs of vowels and tones left out
    assert clean.count_words("l’été – don't stop") == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop_me, naïve l’été!", ["don", "t", "stop", "me", "naïve", "l", "été"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("मेरा बेटा, मेरी बेटी", ["मेरा", "बेटा", "मेरी", "बेटी"]),
        ("தமிழ் மொழி।", ["தமிழ்", "மொழி"]),
        ("كِتَابٌ", ["كِتَابٌ"]),
        ("❤️ 我们去 park", ["我", "们", "去", "park"]),
    ],
)
def test_words_are_letters_and_the_signs_that_belong_to_them(text, words):
    assert clean.words(text) == words


def test_halves_meet_before_the_middle_word():
    assert clean.text_halves("one two three four five") == ("one two three", "four five")
    assert clean.text_halves("我们去公园") == ("我们去", "公园")


@settings(deadline=None)
@given(st.text())
def test_the_key_is_blind_to_case_and_white_space(text):
    assert clean.content_key(text) == clean.content_key(f"  {text.replace(' ', '  ')}\n")
    assert clean.content_key("ﬁne  CAFÉ") == clean.content_key("fine cafe\u0301")
    assert clean.content_key(text) != clean.content_key(f"{text}x")


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet=st.sampled_from(list("aB. J\xa0\u3000é中。!?\n\"'()1,<>&;\u200b-")), max_size=60))
def test_any_text_can_be_cut_and_nothing_visible_is_lost(text):
    cleaned = clean.clean_text(text)
    pieces = clean.sentences(cleaned, "en")
    assert "".join("".join(pieces).split()) == "".join(cleaned.split())
