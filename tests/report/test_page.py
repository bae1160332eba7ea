"""The page: every number on it comes from the folder of a run, nothing on it comes from elsewhere."""

import json
import math
import os
import re
import statistics

import numpy as np
import pytest
from made_runs import log_lines, retrieval, score, write_run
from page_reader import Page
from scipy.spatial.distance import pdist
from small_runs import QUICK, WORDS

import selfsent
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import UserError
from selfsent.report import embeddings, page
from selfsent.runs import read, tables
from selfsent.storage import atomic
from selfsent.training.validation import Validator

EVIL = "<script>alert('x')</script> & <img src=http://evil.example/x.png> a \"quoted\" line"


def made(tmp_path, *folders, **options):
    return Page(page.write_report(folders, tmp_path / "report.html", **options).read_text(encoding="utf-8"))


def sts(value, task="stsb", aggregation="all", **protocol):
    return score(task, value, aggregation=aggregation, data=f"data of {task}", width=1.0, **protocol)


def written(folder):
    """Return every score that scores.json holds, by what the page calls its column."""
    content = json.loads((folder / "scores.json").read_text())
    return [entry["value"] for side in ("base", "trained") for entry in content[side]["scores"]]


def test_every_number_in_the_tables_is_one_of_the_run_and_is_rounded_right(tmp_path):
    base = [
        retrieval(30.1234),
        sts(50.37),
        sts(41.0, "sts12"),
        score("geometry", -1.6543, "uniformity", "", width=0.02),
    ]
    trained = [retrieval(35.678), sts(55.66), sts(44.4, "sts12"), score("geometry", -2.5, "uniformity", "", width=0.02)]
    folder = write_run(tmp_path / "run", before=base, after=trained)
    cells = [cell for cell in made(tmp_path, folder).cells if "paper" not in cell[3]]
    assert sorted(value for _, value, _, _ in cells) == sorted(written(folder))
    entries = {entry["value"]: entry for entry in base + trained}
    for _, value, (shown, interval), _ in cells:
        decimals = len(shown.partition(".")[2])
        assert shown == f"{value:.{decimals}f}".replace("-", "−")
        low, high = (entries[value][side] for side in ("low", "high"))
        assert interval == f"{low:.{decimals}f} to {high:.{decimals}f}".replace("-", "−")
        assert decimals == (3 if abs(value) < 5 else 1)


def test_seeds_are_shown_as_their_mean_and_their_standard_deviation(tmp_path):
    folders = [write_run(tmp_path / f"run-{seed}", seed=seed) for seed in (1, 2, 4)]
    found = made(tmp_path, *folders)
    values = [json.loads((one / "scores.json").read_text())["trained"]["scores"][0]["value"] for one in folders]
    (cell,) = [cell for cell in found.cells if "mean of 3 seeds" in cell[3]]
    assert cell[1] == pytest.approx(statistics.mean(values))
    assert cell[2] == [f"{statistics.mean(values):.1f}", f"± {statistics.stdev(values):.2f}"]
    assert len([cell for cell in found.cells if cell[3].startswith("base")]) == 1  # one base, shown once


def test_scores_of_two_protocols_never_share_a_column(tmp_path):
    first = write_run(tmp_path / "a", after=[retrieval(33.0, "held1"), sts(55.0), sts(56.0, aggregation="mean")])
    second = write_run(tmp_path / "b", after=[retrieval(44.0, "held2"), sts(57.0), sts(58.0, texts="raw")], data="d")
    columns = {}
    for column, value, _, row in made(tmp_path, first, second).cells:
        if "paper" not in row:
            columns.setdefault(column, set()).add(value)
    apart = [{33.0}, {44.0}, {56.0}, {58.0}, {55.0, 57.0}]
    for values in apart:
        assert any(values <= shown for shown in columns.values())
    for shown in columns.values():
        assert sum(bool(values & shown) for values in apart) == 1


def test_declutr_s_means_over_sub_files_stay_out_of_the_column_of_all(tmp_path):
    run = write_run(tmp_path / "run", method="declutr", after=[sts(55.0, "sts12"), sts(57.0, "sts12", "mean")])
    cells = made(tmp_path, run).cells
    (paper,) = [cell for cell in cells if cell[1] == 64.10]
    (mean,) = [cell for cell in cells if cell[1] == 57.0]
    (every,) = [cell for cell in cells if cell[1] == 55.0]
    assert paper[0] == mean[0] != every[0]


def test_the_paper_s_average_over_seven_sets_stands_apart_from_one_over_six(tmp_path):
    six = sts(60.0, "average of 6: sts12 sts13 sts14 sts15 stsb sickr")
    cells = made(tmp_path, write_run(tmp_path / "run", after=[sts(55.0), six])).cells
    (paper,) = [cell for cell in cells if cell[1] == 76.25]
    assert paper[0].startswith(tables.AVERAGE)
    assert [cell[1] for cell in cells if cell[0] == paper[0]] == [76.25]
    shared = [cell[0] for cell in cells if cell[1] in (55.0, 76.85)]
    assert len(shared) == 2
    assert len(set(shared)) == 1


def test_the_tests_behind_a_verdict_are_tabled_with_what_stands_beside_them(tmp_path):
    folder = write_run(tmp_path / "run")
    systems = {"base": 40.0, "trained": 52.0, "BM25": 61.0}
    said = {"verdict": "better", "sentences": ["Better than its base.", "Word matching finds more."]}
    said |= {
        name: {"scores": [score("halves", value, "mrr@10", "", data="h"), score("nearness", value / 2, aggregation="")]}
        for name, value in systems.items()
    }
    (folder / "verdict.json").write_text(json.dumps(said))
    found = made(tmp_path, folder)
    rows = {}
    for _, value, _, row in found.cells:
        rows.setdefault(row, []).append(value)
    assert rows["BM25"] == [61.0, 30.5]
    assert rows["base: builtin pooling mean"][:2] == [40.0, 20.0]
    assert "Better than its base. Word matching finds more." in found.text


def test_bm25_and_word_vectors_stand_in_the_table_and_in_the_chart(tmp_path):
    test, dev = {"bm25": 61.25, "static": 69.75}, {"bm25": 62.5, "static": 68.5}
    more = {
        key: {name: {"scores": [retrieval(value)], "missing": {}, "fingerprint": "f"} for name, value in values.items()}
        for key, values in (("baselines", test), ("baselines_dev", dev))
    }
    found = made(tmp_path, write_run(tmp_path / "run", more=more))
    rows = [(row, value) for _, value, _, row in found.cells]
    assert [(row.split()[0], value) for row, value in rows[:3]] == [("base:", 30.123), ("BM25", 61.25), ("word", 69.75)]
    assert len({column for column, *_ in found.cells}) == 1  # one measurement
    (caption,) = re.findall(r"<figcaption>([^<]*BM25[^<]*)", found.html)  # the curve is measured on the other half
    assert "BM25: 62.5." in caption
    assert "word vectors: 68.5." in caption


def test_the_page_asks_nothing_of_the_network(tmp_path):
    found = made(tmp_path, *(write_run(tmp_path / f"run-{seed}", seed=seed) for seed in (1, 2)))
    assert found.external() == []
    assert "http://" not in found.html
    assert "https://" not in found.html
    assert ("meta", "content", "default-src 'none'") in {(t, n, str(v).split(";")[0]) for t, n, v in found.attributes}


def test_identifiers_are_unique_and_every_reference_is_met(tmp_path):
    found = made(tmp_path, *(write_run(tmp_path / name, data=name) for name in "ab"))
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    wanted = {value[1:] for _, name, value in found.attributes if name == "href"}
    wanted |= {value[5:-1] for _, name, value in found.attributes if name == "clip-path"}
    assert wanted <= set(ids)


def test_every_figure_says_what_to_see(tmp_path):
    found = made(tmp_path, write_run(tmp_path / "run"))
    figures = found.html.count("<figure")
    assert figures >= 4
    assert found.html.count("<figcaption>") == figures == found.html.count('role="img"')


def a_sample(texts):
    """Return a sample as two made-up encoders embed it."""
    draw = np.random.default_rng(0)
    base, trained = (unit(draw.normal(size=(len(texts), 5))) for _ in range(2))
    return embeddings.compare_embeddings(texts, base, trained, "two lines")


def test_texts_are_escaped_wherever_they_stand(tmp_path):
    run = write_run(tmp_path / "<script>run", texts=[EVIL], lines=[*log_lines(), {"step": 40, "alarm": EVIL}])
    (group,) = read.group_runs([read.read_run(run)])
    found = Page(page.render_page([group], [a_sample([f"{EVIL} {number}" for number in range(20)])]))
    assert found.scripts == 1  # our own
    assert not [value for tag, _, value in found.attributes if tag == "img"]
    assert found.external() == []
    assert f"{EVIL} 0" in found.text


def test_many_long_runs_with_long_texts_stay_below_three_megabytes(tmp_path):
    lines = [line | {"step": line["step"] + 50 * turn} for turn in range(400) for line in log_lines()]
    runs = [write_run(tmp_path / f"run-{seed}", seed=seed, lines=lines) for seed in range(3)]
    runs += [write_run(tmp_path / f"other-{number}", lines=lines, data=str(number)) for number in range(8)]
    groups = read.group_runs([read.read_run(run) for run in runs])
    texts = [f"{number} " + "long text & more " * 100 for number in range(2 * embeddings.MAX_PAIRS)]
    html = page.render_page(groups, [a_sample(texts)] * page.MAX_SAMPLES + [""] * (len(groups) - page.MAX_SAMPLES))
    assert len(html.encode()) < 3_000_000


def test_a_run_that_is_not_finished_gets_a_page_that_says_so_first(tmp_path):
    found = made(tmp_path, write_run(tmp_path / "run", scored=False, lines=log_lines(20)))
    assert "run is not finished. It is at step 20 of 40" in found.text
    assert "No verdict" in found.text
    assert found.text.index("not finished") < found.text.index("Learning curves", found.text.index("Verdict No"))
    assert found.cells == []
    assert "Better in" not in found.text


def test_a_model_without_scores_says_what_measures_it(tmp_path):
    folder = write_run(tmp_path / "run", scored=False)
    (folder / "model").mkdir()
    (folder / "model" / "modules.json").write_text("[]")
    assert "It has a model but no scores" in made(tmp_path, folder).text


def test_what_cannot_be_opened_any_more_is_said_and_the_rest_is_there(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "model").mkdir()
    (folder / "model" / "modules.json").write_text("[]")
    found = made(tmp_path, folder)
    assert "no longer in the cache" in found.text
    assert "1,234 texts were trained on" in found.text
    assert len(found.cells) == 2


def write_pretraining(folder, steps, scores, **recipe):
    """Write the folder of a finished pretraining."""
    folder.mkdir()
    recipe = {"texts": ["raw.txt"], "seed": 3, "tokens": 500.0, **recipe}
    atomic.write_sealed(folder / "config.json", {"recipe": recipe, "corpus": {"fingerprint": "f" * 32}})
    lines = [{"step": step, "terms": {"masked_lm": 9.0 - step}, "loss": 9.0 - step} for step in range(1, 1 + steps)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    atomic.seal_file(folder / "log.jsonl")
    atomic.write_sealed(folder / "scores.json", scores)
    return folder


def test_a_pretraining_has_curves_and_a_command_and_no_verdict(tmp_path):
    scores = {"held_out_loss": 6.6, "held_out_accuracy": 14.45}
    found = made(tmp_path, write_pretraining(tmp_path / "pretrained", 3, scores, size="nano", length=16))
    for words in (
        "A new encoder",
        "held-out loss: 6.6",
        "no base to compare it with",
        "masked language model from scratch, size nano, on raw.txt",
        "selfsent pretrain raw.txt --size nano --tokens 500.0 --seed 3 --set length=16",
    ):
        assert words in found.text


def test_a_continued_pretraining_says_from_what(tmp_path):
    folder = write_pretraining(tmp_path / "further", 1, {"held_out_loss": 2.6}, size=None, base="builtin")
    found = made(tmp_path, folder)
    assert "masked language model, continued from builtin, on raw.txt" in found.text
    assert "Masked language modelling was continued from builtin; whether its embeddings became better" in found.text
    assert "no base" not in found.text
    assert "selfsent pretrain raw.txt --base builtin --tokens 500.0 --seed 3" in found.text


def test_without_a_path_the_page_of_one_run_lies_in_its_folder_and_that_of_several_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (write_run(tmp_path / name, data=name) for name in "ab")
    assert page.write_report([first, first]) == first / "report.html"
    assert (first / "report.html").is_file()
    assert page.write_report([first, second]).resolve() == tmp_path / "report.html"
    assert len(made(tmp_path, first, first / ".." / "a").cells) == 2  # one run given twice is one


@pytest.mark.parametrize("out", ["", "no/where.html", "run/config.json/x"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, out):
    folder = write_run(tmp_path / "run")
    with pytest.raises(UserError, match="cannot write"):
        page.write_report([folder], tmp_path / out)


def test_only_a_page_of_its_own_is_replaced_unless_that_is_asked_for(tmp_path):
    folder = write_run(tmp_path / "run")
    for out in (folder / "report.html", tmp_path / "thesis.html"):
        assert page.write_report([folder], out) == page.write_report([folder], out)
        out.write_text("<!DOCTYPE html><title>mine</title>")
        with pytest.raises(UserError, match=f"{out.name} exists, and this command did not write it: .* --overwrite"):
            page.write_report([folder], None if out.parent == folder else out)
        assert "mine" in out.read_text()
        assert "selfsent report" in page.write_report([folder], out, overwrite=True).read_text()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("pipe", "link"):
        with pytest.raises(UserError, match=r"exists, and this command did not write it: choose another --out$"):
            page.write_report([folder], tmp_path / name, overwrite=True)


@pytest.fixture
def lines_of_text(tmp_path):
    draw = np.random.default_rng(0)
    path = tmp_path / "text.txt"
    rows = [" ".join(draw.choice(WORDS, 14)) for _ in range(400)]
    rows = [f"{row} <script>{number}" for number, row in enumerate(rows)]  # never closed, cleaning leaves it
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_from_training_to_the_page(bert, lines_of_text, tmp_path):
    settings = [*QUICK, "corpus.held_out_share=0.3", "corpus.held_out=100"]
    result = selfsent.train(
        "simcse", base=str(bert), corpus=[str(lines_of_text)], out=tmp_path / "run", settings=settings
    )
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    first = next(line["scores"] for line in logged if "scores" in line)

    run = read.read_run(result.folder)
    pairs = read.corpus_of_run(run).held_out.dev
    base = load_encoder(bert, pooling=None)
    both = [encode(base, side).astype(np.float64) for side in (pairs.queries, pairs.passages)]
    queries, passages = ([row / math.sqrt(sum(row**2)) for row in side] for side in both)
    distances = [sum((query - passage) ** 2) for query, passage in zip(queries, passages, strict=True)]
    assert first["alignment"] == pytest.approx(sum(distances) / len(distances), abs=1e-6)

    found = made(tmp_path, tmp_path / "run")
    assert found.scripts == 1
    assert found.external() == []
    shown = {value for _, value, _, _ in found.cells}
    assert set(result.baselines) == {"bm25", "static"}
    systems = result.before, result.after, *result.baselines.values()
    assert shown == {one.value for system in systems for one in system.scores}
    assert result.verdict.split(". ", 1)[1] in found.text
    for words in ("A map of the texts", "Nearest neighbours", "texts kept", "texts found"):
        assert words in found.text
    test = read.corpus_of_run(run).held_out.test
    for text in (*test.queries, *test.passages):
        assert found.html.count(f"<title>{text.replace('<', '&lt;').replace('>', '&gt;')}</title>") == 2
    account = read.corpus_of_run(run).account
    counts = {int(value) for _, name, value in found.attributes if name == "data-count"}
    assert counts == {count for _, count, _ in account.rows()}


def test_with_data_the_log_holds_alignment_and_uniformity_of_stsb(bert, data):
    from selfsent.corpus.held_out import HeldOut
    from selfsent.evaluation.suite import read_suite

    opened = load_encoder(bert)
    scores = Validator(HeldOut("pairs"), str(data), "stsb-dev")(opened)
    (pairs,) = read_suite(["stsb-dev"], data).tasks[0].parts.values()
    same = [place for place, gold in enumerate(pairs.labels) if gold > 4]
    left, right = (encode(opened, [side[i] for i in same]).astype(float) for side in (pairs.left, pairs.right))
    cosines = [float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a, b in zip(left, right, strict=True)]
    assert scores["stsb_alignment"] == pytest.approx(sum(2 - 2 * cosine for cosine in cosines) / len(cosines), rel=1e-3)
    every = encode(opened, [*pairs.left, *pairs.right]).astype(float)
    squared = pdist(every / np.linalg.norm(every, axis=1, keepdims=True), "sqeuclidean")
    assert scores["stsb_uniformity"] == pytest.approx(math.log(np.exp(-2 * squared).mean()), rel=1e-3)


def test_the_command_writes_the_page_and_refuses_in_one_sentence(tmp_path, monkeypatch, capsys):
    from commands import run as command

    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    status, out, err = command(monkeypatch, capsys, "report", "run")
    assert status == 0, err
    assert "report: run/report.html" in out
    assert (tmp_path / "run" / "report.html").is_file()
    status, out, err = command(monkeypatch, capsys, "report", tmp_path)
    assert status == 1
    assert err.strip().splitlines()[-1].startswith("error: ")
    assert "holds no run" in err
    assert "Traceback" not in out + err
