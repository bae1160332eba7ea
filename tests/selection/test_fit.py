"""A selection on a small text: what it leaves behind, and that it ends the same however often it was killed."""

import json

import numpy as np
import pytest
from tiny import TEXTS

import selfsent
from selfsent.progress import Progress

QUICK = ["steps=50", "batch_size=8", "words_steps=25", "words_batch_size=16", "bootstrap=100"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
STATIC = "builtin-static"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.mktemp("fit-cache")))
        yield


def made(folder, documents=420, sentences=6, name="text.jsonl"):
    """Documents, each about a few words of its own."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(documents):
        topic = draw.choice(WORDS, 6)
        text = [" ".join(draw.choice([*topic, *WORDS], 9)).capitalize() + "." for _ in range(sentences)]
        rows.append(json.dumps({"text": " ".join(text)}) + "\n")
    path = folder / name
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return made(tmp_path_factory.mktemp("text"))


def fit(text, out, *bases, more=(), **options):
    return selfsent.fit(corpus=text, base=bases, out=out, minutes=1.0, settings=[*QUICK, *more], **options)


class Told(Progress):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture(scope="module")
def whole(bert, text, tmp_path_factory):
    """A selection that was never stopped."""
    told = Told()
    return fit(text, tmp_path_factory.mktemp("whole") / "fit", str(bert), STATIC, progress=told), told.said


def test_print(whole):
    print(whole[0].sentences, *whole[0].rows, *whole[1], sep="\n")
