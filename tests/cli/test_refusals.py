"""Every command refuses what cannot work in one sentence that names it; what is there stays untouched."""

import io
import json
import shlex
import sys
from contextlib import redirect_stdout, suppress

import numpy as np
import pytest
from commands import run
from tiny import TEXTS

from selfsent.__main__ import main

REFUSALS = """
train --method simce                                        | unknown method 'simce': did you mean 'simcse'
train --method scd+simce                                    | unknown method 'simce': did you mean 'simcse'
train --method none.toml                                    | none.toml
train --method simcse-bert-base --set train.stpes=3         | did you mean 'train.steps'
train --method simcse --set objective.temprature=3          | did you mean 'objective.temperature'
train --method simcse --set objective.temperature=-1        | objective.temperature = -1
train --method simcse --set corpus.max_txts=3               | did you mean 'corpus.max_texts'
train --method simcse --set encoder.pooling=maen            | did you mean 'mean'
train --method simcse --set hardware.precision=fp8          | 'fp8'
train --method simcse --base no/such/folder                 | 'no/such/folder'
train nothing.txt --method simcse                           | nothing.txt
train --method scd-grid                                     | run it with selfsent sweep TEXT --method scd-grid
train --method simcse --seeds 0                             | seeds = 0 does not fit
train TEXT --method whitenedcse --set objective.num_groups=96 | whitenedcse does not fit builtin: num_groups is 96
train TEXT --method whitenedcse --set objective.group_width=64 | whitenedcse needs 65 texts in a batch
train nothing.txt --method simcse --prepare-only            | nothing.txt
train --method simce --prepare-only                         | did you mean 'simcse'
train --method simcse --prepare-only --engine spark         | unknown engine 'spark'
train --method simcse --prepare-only --workers 2            | --workers is for --engine ray
train --method simcse --engine ray                          | --engine ray is for --prepare-only
train --method simcse --prepare-only --set corpus.max_lenght=2 | did you mean 'corpus.max_length'

sweep --method simce                                        | unknown method 'simce': did you mean 'simcse'
sweep --method simcse                                       | there is nothing to sweep
sweep --method simcse --set objective.temprature=1,2        | did you mean 'objective.temperature'
sweep --method simcse --set train.steps=1,2 --sampler gird  | did you mean 'grid'
sweep --method simcse --range train.steps=1..2              | a grid needs a list of values

pretrain TEXT --size static --hours 2                       | --hours does not fit --size static
pretrain TEXT --size static --tokens 2                      | --tokens does not fit --size static
pretrain TEXT --size static --resume                        | --resume does not fit --size static
pretrain TEXT --size static --vectors v.txt                 | --vectors brings its own words
pretrain TEXT --vectors v.txt                               | --vectors is for --size static
pretrain TEXT --size huge                                   | unknown size 'huge'
pretrain TEXT --hours 1 --tokens 5                          | tokens and hours both
pretrain TEXT --set objective.mask_prob=1                   | did you mean 'objective.mask_probability'

fit --set stpes=100                                         | did you mean 'steps'
fit --set steps=49                                          | steps = 49
fit --set general_loss=-1                                   | general_loss = -1
fit --set bootstrap=10                                      | bootstrap = 10
fit --set corpus.splt=no                                    | did you mean 'corpus.split'
fit --set column=message                           | unknown key 'column': did you mean 'corpus.column'
fit --set fit.steps=49                                      | steps = 49
fit --set corpus=5                                          | corpus = 5 does not fit: it is a table of keys
fit --set corpus.min_words=9                                | corpus.min_words changes nothing in a selection
fit --base a/twin --base b/twin                             | two bases are called twin: rename one
fit --minutes 0                                             | minutes = 0
fit nothing.txt --for search --set purpose=grouping           | purpose is given twice, as 'search' and by --set
fit nothing.txt --for cooking                               | unknown purpose 'cooking'
fit nothing.txt --minutes 5 --set fit.minutes=6             | minutes is given twice, as 5.0 and by --set
fit nothing.txt                                             | nothing.txt
fit FEW                                 | 2 documents or lines are too few to choose an encoder by: give 400 or more

evaluate builtin --tasks stsx                               | did you mean 'sts
evaluate builtin --tasks sts                                | --data
evaluate builtin --data nowhere                             | nowhere
evaluate builtin --data . --classifier svm                  | unknown classifier 'svm'
evaluate builtin --tasks classification:none.csv            | there is no file or folder 'none.csv'
evaluate builtin --tasks clasification:none.csv             | did you mean 'classification:FILE'

compare TEXT builtin builtin --tasks sts                    | TEXT changes nothing in a comparison on --tasks
compare builtin builtin --tasks sts --out x.json            | --out changes nothing in a comparison on --tasks
compare builtin builtin --tasks sts --column body           | --column changes nothing in a comparison on --tasks
compare builtin builtin --texts TEXT --no-static            | --no-static changes nothing in a comparison on --texts
compare builtin builtin --tasks sts --details               | --details changes nothing in a comparison on --tasks
compare builtin builtin --data .                            | --data changes nothing in a comparison on text
compare a,b c --tasks sts                                   | 2 and 1 models cannot be compared
compare builtin builtin --tasks retrieval                   | the task retrieval is not compared
compare nothing.txt builtin BERT                            | nothing.txt
compare TEXT builtin no/such/folder                         | 'no/such/folder' cannot be found
compare TEXT builtin builtin                                | are the same encoder, builtin

encode nothing.txt                                          | nothing.txt
encode ~no.such.user/a.txt                                  | ~no.such.user/a.txt does not exist
encode WIDE --out WIDE --overwrite                          | is the text itself: name another file
encode TEXT --out /dev/null --overwrite                     | output /dev/null does not fit
encode                                                      | the source held no texts
encode TEXT --part 3/2                                      | part '3/2' does not fit
encode TEXT --part 1/2 --engine ray                         | --part is for other schedulers
encode TEXT --dtype int8                                    | int8 takes its ranges from the first 16,384 texts, and 6
encode TEXT --ranges TEXT                                   | --ranges changes nothing with --dtype float32
encode TEXT --dtype int8 --ranges TEXT                      | cannot be read
encode TEXT --dtype uint8 --ranges WIDE                     | do not fit: give those that an output of this model, 256
encode TEXT --workers 2                                     | --workers is for --engine ray

index                                                       | no text was given
index CORPUS --out INDEX --model BERT                       | is an index already: add --update
index --update --out FOLDER                                 | is no index
index --update --out INDEX --set mode=dense                 | --set does not fit --update
index --update --out INDEX --id-column key                  | --id-column does not fit --update
index CORPUS --update --out INDEX --column body        | --column does not fit --update
index --update --out INDEX OTHER                            | name that, too, to add to it
index CORPUS --out x --set mode=magic                       | unknown mode 'magic'

search nothing.txt query                                    | nothing.txt
search BERT query                                           | is a model and no text: name a text
train BERT --method simcse                                  | is a model and no text: name a text
search TEXT query --mode dense --words 0.3                   | words changes nothing in mode dense
search TEXT query --mode bm25 --feedback 3                  | feedback changes nothing in mode bm25
search CORPUS ' ' --model BERT                              | the query is empty
search INDEX rain --model BERT                              | is an index, which has its model and its texts
search INDEX rain --column body                        | is an index, which has its model and its texts
search INDEX rain --id-column body                          | is an index, which has its model and its texts
search INDEX rain --mode magic                              | unknown mode 'magic'
search INDEX ' '                                            | the query is empty

serve --port 0                                              | no model was given
serve --port 99999                                          | between 0 and 65535
serve BERT --port 0 --api-key ' '                           | the API key is empty
serve --port 99999 --api-key=                                | the API key is empty
serve BERT --port 0 --set deadline=0                        | deadline
serve --port 0 --index FOLDER                               | is no index
serve --port 0 --index CORPUS                               | is a file, and an index is a folder: make one with
serve --port 0 --index INDEX/index.json                     | is a file, and an index is a folder: give INDEX

reproduce scd-tabel-1                                       | did you mean 'scd-table-1'
reproduce scd-table-1 --scale tiny                          | scale 'tiny' does not fit: choose one of small, full
reproduce scd-table-1 --set stps=3                          | did you mean 'steps'
reproduce scd-table-1 --checkpoint model                    | --checkpoint 'model' does not fit: write NAME=FOLDER
reproduce scd-table-1 --base no/such/base/here              | nothing of scd-table-1 can be measured

settings scdd                                               | did you mean 'scd'
settings corpus.maxx                                        | did you mean 'corpus.max_
settings ../../no.such.module                               | no module '../../no.such.module' is installed
settings no.such.module                                     | no module 'no.such.module' is installed or in this folder
"""
ROWS = [[part.strip() for part in line.split(" | ")] for line in REFUSALS.splitlines() if line]


@pytest.fixture(scope="module")
def places(bert, tmp_path_factory):
    """The files that the table names in capitals."""
    folder = tmp_path_factory.mktemp("refusals")
    files = {"TEXT": TEXTS * 20, "CORPUS": TEXTS, "FEW": TEXTS[:2], "OTHER": ["A text of another corpus."]}
    for name, texts in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "FEW.jsonl").rename(folder / "FEW.txt")
    (folder / "FEW.txt").write_text("one line of words\nanother line of words\n")
    np.save(folder / "WIDE", np.stack([np.zeros(300), np.ones(300)]).astype(np.float32))
    for name in ("FOLDER", "a/twin", "b/twin"):
        (folder / name).mkdir(parents=True)
    names = {name: folder / f"{name}.jsonl" for name in files}
    names["WIDE"] = folder / "WIDE.npy"
    return names | {"FEW": folder / "FEW.txt", "BERT": bert, "FOLDER": folder / "FOLDER", "INDEX": folder / "INDEX"}


@pytest.fixture(scope="module")
def made_index(places):
    """Make the index that some lines name."""
    words = "selfsent", "index", places["CORPUS"], "--model", places["BERT"], "--out", places["INDEX"]
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(io.StringIO()), suppress(SystemExit):
        patched.setattr(sys, "argv", [*map(str, words)])
        main()


@pytest.mark.parametrize(("line", "message"), ROWS, ids=[row[0] for row in ROWS])
def test_what_cannot_work_is_refused_in_one_sentence(line, message, places, request, monkeypatch, capsys, tmp_path):
    if "INDEX" in line:
        request.getfixturevalue("made_index")
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", None)  # closed by who started it
    monkeypatch.chdir(places["FOLDER"].parent)
    before = {path: path.stat().st_mtime_ns for path in places["FOLDER"].parent.rglob("*") if path.is_file()}
    status, out, err = run(monkeypatch, capsys, *(places.get(word, word) for word in shlex.split(line)))
    assert (status, out) == (1, ""), err
    assert message in err.strip().splitlines()[-1], err
    assert "Traceback" not in err
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_server_whose_key_is_an_empty_variable_does_not_start_without_one(monkeypatch, capsys):
    monkeypatch.setenv("SELFSENT_API_KEY", "")
    status, _, err = run(monkeypatch, capsys, "serve", "--port", "99999")
    assert (status, err.count("\n")) == (1, 1)
    assert "the API key is empty (--api-key or SELFSENT_API_KEY)" in err


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_command_in_a_folder_that_is_gone_says_so(monkeypatch, capsys, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run(monkeypatch, capsys, "encode", "a.txt")[::2] == (
        1,
        "error: the folder in which this command was started is gone: start it in one that exists\n",
    )
