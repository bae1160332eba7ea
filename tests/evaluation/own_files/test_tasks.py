"""Own files as tasks: every layout is read, and what does not fit is named."""

import json

import numpy as np
import openpyxl
import pytest

from selfsent.errors import DataError, UserError
from selfsent.evaluation.own_files import tasks


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl" and not isinstance(content, str):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_text(content, encoding="utf-8")
    return path


def test_a_table_with_a_split(tmp_path):
    path = write(tmp_path / "t.csv", 'text,label,split\n"a, b",x,train\nc,y,train\nd,x,test\ne,y,dev\n')
    task = tasks.read_custom_task(f"classification:{path}")
    assert (task.train, task.test, task.parting) == ([("a, b", "x"), ("c", "y")], [("d", "x")], "as given")


@pytest.mark.parametrize(("name", "part"), [("t.csv", "cp1252"), ("t.xlsx", "Jan")])
def test_the_encoding_or_sheet_of_a_table_stands_behind_its_name(tmp_path, name, part):
    rows = [("text", "label"), ("Ü", "x"), ("a", "y"), ("b", "y")]
    if part == "Jan":
        book = openpyxl.Workbook()
        book.active.append(["notes"])
        for row in rows:
            (book["Jan"] if part in book.sheetnames else book.create_sheet(part)).append(row)
        book.save(tmp_path / name)
    else:
        (tmp_path / name).write_text("\n".join(map(",".join, rows)), encoding=part)
    place = tmp_path / f"{name}::{part}"
    assert tasks.read_labelled(place) == rows[1:]
    assert tasks.read_custom_task(f"clustering:{place}").documents == ["Ü", "a", "b"]
    with pytest.raises(DataError, match="there is no file or folder"):
        tasks.read_custom_task(f"clustering:{tmp_path}/none.csv::cp1252")


def test_rows_without_a_text_are_told_together(tmp_path):
    path = write(tmp_path / "t.csv", "text,label\n,x\na,x\n ,y\nb,y\n")
    with pytest.raises(DataError, match=r"line 2 has nothing in 'text' \(and 1 more\): leave such rows out"):
        tasks.read_custom_task(f"classification:{path}")


def test_a_folder_of_two_files(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "a", "label": 0}, {"text": "b", "label": 1}])
    write(tmp_path / "test.tsv", 'sentence\tintent\n"quoted" word\t1\n')
    task = tasks.read_custom_task(f"classification:{tmp_path}")
    assert (task.train, task.test) == ([("a", "0"), ("b", "1")], [('"quoted" word', "1")])


def test_without_a_split_half_of_each_class_is_held_out(tmp_path):
    rows = [{"text": f"t{i}", "label": "xyz"[i % 3]} for i in range(30)]
    path = write(tmp_path / "t.jsonl", rows)
    task, again = (tasks.read_custom_task(f"classification:{path}") for _ in range(2))
    for half in (task.train, task.test):
        assert sorted(label for _, label in half) == sorted("xyz" * 5)
    assert not set(task.train) & set(task.test)
    assert task.train == again.train
    assert task.parting == "half of each class, drawn with seed 0"


def test_equal_texts_are_held_out_together(tmp_path):
    rows = [{"text": f"{'T' if i % 2 else 't'}{i // 4}", "label": "xy"[i // 4 % 2]} for i in range(80)]
    task = tasks.read_custom_task(f"classification:{write(tmp_path / 't.jsonl', rows)}")
    known, asked = ({text.lower() for text, _ in half} for half in (task.train, task.test))
    assert (len(known), len(asked), known & asked) == (10, 10, set())


def test_texts_and_classes_of_a_given_split_that_spoil_its_scores_are_told(tmp_path):
    path = write(tmp_path / "t.csv", "text,label,split\na,x,train\nb,y,train\nA,x,test\nc,z,test\nd,y,test\n")
    assert tasks.read_custom_task(f"classification:{path}").notes == [
        "1 of 3 test texts are training texts, too: scores are too high",
        "tested and never learned: z",
    ]


def test_the_only_other_column_is_the_label(tmp_path):
    path = write(tmp_path / "t.csv", "text,topic\n7,1\n8,2\n9,1\n")  # numbers, in a column that is called text
    assert tasks.read_custom_task(f"clustering:{path}").labels == ["1", "2", "1"]


def test_labels_and_splits_that_are_written_in_several_ways(tmp_path):
    """1 and 1.0 are one class, and rows of neither split are counted."""
    rows = [
        {"text": f"t{i}", "label": label, "split": ("train", "test", "")[i % 3]}
        for i, label in enumerate([1, 1.0, 2, 2.0] * 3)
    ]
    task = tasks.read_custom_task(f"classification:{write(tmp_path / 't.jsonl', rows)}")
    assert {label for _, label in task.train + task.test} == {"1", "2"}
    assert task.notes == ["4 rows are left out: their split is neither train nor test"]


def test_pairs(tmp_path):
    path = write(tmp_path / "t.csv", "sentence1,sentence2,label\na,b,1\nc,d,0\ne,f,true\n")
    task = tasks.read_custom_task(f"pairs:{path}")
    assert (task.left, task.right, task.same) == (["a", "c", "e"], ["b", "d", "f"], [True, False, True])


def test_reranking_keeps_each_query_to_its_candidates(tmp_path):
    rows = [
        {"query": "q", "positive": ["a"], "negative": ["b", "c"]},
        {"query": "r", "positive": ["c"], "negative": ["a"]},
    ]
    task = tasks.read_custom_task(f"reranking:{write(tmp_path / 't.jsonl', rows)}")
    assert task.documents == ["a", "b", "c"]
    assert task.grades == [{0: 1}, {2: 1}]
    assert task.candidates == [[0, 1, 2], [2, 0]]


def test_queries_that_every_order_answers_are_left_out_of_a_reranking(tmp_path):
    rows = [
        {"query": "q\ud83d", "positive": ["a"], "negative": ["b"]},
        {"query": "r", "positive": ["c"], "negative": []},
        {"query": "s", "positive": [], "negative": ["d"]},
    ]
    task = tasks.read_custom_task(f"reranking:{write(tmp_path / 't.jsonl', rows)}")
    assert (task.queries, task.documents) == (["q?"], ["a", "b"])
    assert task.notes == ["2 of 3 queries are left out: they lack positive or negative texts"]


def test_a_query_does_not_find_itself_unless_it_answers(tmp_path):
    """BEIR's layout of duplicate questions: a query is a document of the corpus, and another one answers it."""
    texts = [{"_id": f"{number}", "text": f"text {number}"} for number in range(4)]
    write(tmp_path / "corpus.jsonl", texts)
    write(tmp_path / "queries.jsonl", texts[:3])
    write(tmp_path / "qrels" / "test.tsv", "0\t1\t1\n1\t0\t1\n2\t2\t1\n")
    task = tasks.read_custom_task(f"retrieval:{tmp_path}")
    assert task.themselves == [0, 1, None]
    assert task.notes == ["2 queries do not find the document of their own id, as in BEIR"]
    near = np.array([[1, 0], [1, 0.1], [-1, 0], [0, -1]], float)  # each query's own document is the nearest one
    found = {score.metric: score.value for score in task.score(np.concatenate([near[:3], near]), resamples=0, seed=0)}
    assert (found["mrr@10"], found["ndcg@10"], found["map"]) == (100, 100, 100)


@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore\n", ""])
def test_retrieval_in_beirs_layout(tmp_path, header):
    write(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": "one"}, {"_id": "d2", "title": "T", "text": "two"}])
    write(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"}])
    write(tmp_path / "qrels" / "test.tsv", f"{header}q1\td2\t1\nq2\td1\t0\n")
    task = tasks.read_custom_task(f"retrieval:{tmp_path}")
    assert task.documents == ["one", "T two"]
    assert (task.queries, task.grades) == (["first"], [{1: 1}])  # nothing answers the second


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("classification", "t.txt", "a\n", "is not a table: give a .jsonl"),
        ("classification", "t.csv", "text,label\na,x\nb\n", r"t\.csv, line 3 has 1 cells? and the header 2"),
        ("classification", "t.csv", "text,label\na,x\nb,\n", r"t\.csv, line 3 has no label"),
        ("classification", "t.csv", "text,label\na,x\nb,x\n", r"the classes \['x'\] to learn"),
        ("classification", "t.csv", "text,label,split\na,x,one\nb,y,two\n", "'split' should say train or test"),
        ("classification", "t.csv", "text,label\n", "holds no rows"),
        ("classification", "t.csv", "a,b,c\n1,2,3\n", "has no column 'text': it has 'a', 'b', 'c'"),
        ("classification", "t.csv", "title,content,label\na,b,x\n", "several columns for 'text', 'title', 'content'"),
        ("classification", "t.csv", "text,label,Split\na,x,train\n", "has the splits 'train'"),
        (
            "classification",
            "t.csv",
            "id;label\n1;x\n2,5;y\n",
            "no column 'text', and 'id' holds numbers or dates: call",
        ),
        ("clustering", "t.tsv", "label\tdate\nx\t2024-01-31\ny\t3/2/24 10:00\n", "'date' holds numbers or dates: call"),
        (
            "classification",
            "t.csv",
            "text^label\na^x\n",
            "needs the columns 'text', 'label': it has 'text.label' alone",
        ),
        ("classification", "t.csv", "text\nx\n", "has no column 'label'|needs the columns"),
        ("clustering", "t.jsonl", '{"text": "a", "label": "x"}\n{"text"\n', "line 2 is not valid JSON"),
        ("clustering", "t.jsonl", '["a"]\n', "holds a str"),
        ("clustering", "t.jsonl", '{"text": 3, "label": "x"}\n', "line 1 has 3 where a text should be"),
        ("clustering", "t.jsonl", '{"text": "a", "label": ["x"]}\n', r"line 1 has the label \['x'\]: give a word"),
        ("clustering", "t.jsonl", '{"text": "a", "label": NaN}\n', "line 1 has the label nan: give a word"),
        ("clustering", "t.csv", "text,label,label\na,x,y\n", "has the column 'label' twice"),
        ("pairs", "t.csv", "text1,text2,label\na,b,maybe\n", "line 2 has the label 'maybe': it should be 1 or 0"),
        ("pairs", "t.csv", "text1,text2,label\na,b,1\n", "pairs of one kind only"),
        ("reranking", "t.jsonl", '{"query": "q", "positive": "a"}\n', "should have a 'query' and the lists"),
        ("reranking", "t.jsonl", '{"query": "q", "positive": [], "negative": ["a"]}\n', "no query with positive and"),
        ("classification", "t.csv", "text,label,split\na,Pos,train\nb,Neg,train\nc,pos,test\n", "none is the same"),
        (
            "reranking",
            "t.jsonl",
            '{"query": "q", "positive": ["a"], "negative": ["a"]}\n',
            "'a' among the positive and",
        ),
        ("retrieval", "t.jsonl", "", r"should be a folder with corpus\.jsonl"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, task, name, content, message):
    with pytest.raises(UserError, match=message):
        tasks.read_custom_task(f"{task}:{write(tmp_path / name, content)}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("corpus.jsonl", [{"_id": "d", "text": "a"}, {"_id": "d", "text": "b"}]),
            "line 2 has the '_id' 'd': every row needs one",
        ),
        (("corpus.jsonl", [{"text": "a"}]), "line 1 has the '_id' None: every row needs one"),
        (("qrels/test.tsv", "q\tnone\t1\n"), r"line 1 names 'none', which corpus\.jsonl does not hold"),
        (("qrels/test.tsv", "x\td\t1\n"), r"names 'x', which queries\.jsonl does not hold"),
        (("qrels/test.tsv", "q\td\t0\n"), "no document that answers a query"),
        (("qrels/test.tsv", "q\td\t1\nq\td\t1\nq\td\t0\n"), "line 3 grades 'd' for 'q' once more, and differently"),
        (("queries.jsonl", [{"_id": "q", "text": " "}]), r"queries\.jsonl: the query 'q' is empty: give its text"),
        (("qrels/test.tsv", "head\nq d\n"), "line 2 is not a query, a document and a grade"),
        (("qrels/test.tsv", "q\td\t1.5\n"), "line 1 is not a query, a document and a grade"),
        (("qrels/test.tsv", "head\nq\td\t²\n"), "line 2 is not a query, a document and a grade"),
        (("qrels/test.tsv", "head\nq\td\t--5\n"), "line 2 is not a query, a document and a grade"),
        (("qrels/test.tsv", "q\td\t" + "9" * 5000), "line 1 is not a query, a document and a grade"),
    ],
)
def test_retrieval_that_does_not_fit_is_named(tmp_path, change, message):
    write(tmp_path / "corpus.jsonl", [{"_id": "d", "text": "a"}])
    write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "b"}])
    write(tmp_path / "qrels/test.tsv", "q\td\t1\n")
    write(tmp_path / change[0], change[1])
    with pytest.raises(UserError, match=message):
        tasks.read_custom_task(f"retrieval:{tmp_path}")


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match="there is no file or folder"):
        tasks.read_custom_task(f"classification:{tmp_path / 'none.csv'}")
    with pytest.raises(UserError, match="there is no file or folder"):
        tasks.read_custom_task(f"classification:{'a' * 300}.csv")
    with pytest.raises(UserError, match="has no train file"):
        tasks.read_custom_task(f"classification:{tmp_path}")
    write(tmp_path / "corpus.jsonl", [{"_id": "d", "text": "a"}])
    with pytest.raises(UserError, match=r"queries\.jsonl cannot be opened"):
        tasks.read_custom_task(f"retrieval:{tmp_path}")


def test_a_lone_surrogate_does_not_end_an_evaluation(tmp_path):
    rows = [{"text": f"{number} \ud800", "label": "x\ud800"[number % 2 :]} for number in range(4)]
    task = tasks.read_custom_task(f"clustering:{write(tmp_path / 't.jsonl', rows)}")
    assert task.texts[0] == "0 ?"
    assert task.fingerprint


def test_text_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("text,label\nä,x\n".encode("latin-1"))
    with pytest.raises(UserError, match="is not UTF-8"):
        tasks.read_custom_task(f"clustering:{path}")
