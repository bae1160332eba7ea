"""Every figure of a model card is one of scores.json; the hub's own library reads its head."""

import json
import re

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results
from made_runs import retrieval, score, write_run

from selfsent.runs import card
from selfsent.storage.run_folder import Run


@pytest.fixture
def made(tmp_path):
    """The card of a run with labelled and held-out scores and a baseline, and its scores.json."""
    folder = write_run(
        tmp_path / "tickets",
        before=[retrieval(30.123), score("stsb", 61.237), score("geometry", -1.5, metric="uniformity", width=None)],
        after=[retrieval(35.567), score("stsb", 63.004), score("geometry", -1.7, metric="uniformity", width=None)],
        more={"baselines": {"bm25": {"scores": [retrieval(33.333)], "missing": {}, "fingerprint": "f"}}},
        texts=["/home/somebody/texts.jsonl"],
    )
    (folder / "model").mkdir(exist_ok=True)
    scores = json.loads((folder / "scores.json").read_text())
    card.write_run_card(Run(folder), scores)
    return folder / "model" / "README.md", scores


def test_every_figure_of_the_table_is_one_of_the_file(made):
    path, scores = made
    text = path.read_text()
    head, *rows = [
        line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and "---" not in line
    ]
    systems = [cell.strip() for cell in head[1:-1]]
    assert systems == ["base", "trained", "bm25"]
    assert len(rows) == 2
    seen = 0
    for label, *cells, count in rows:
        for system, cell in zip(systems, cells, strict=True):
            content = scores.get(system) or scores["baselines"][system]
            found = [
                one
                for one in content["scores"]
                if " ".join(filter(None, (one["task"], one["split"], one["metric"], one["aggregation"])))
                == label.strip()
            ]
            figures = [float(figure) for figure in re.findall(r"-?\d+\.\d+", cell)]
            expected = [round(found[0][key], 2) for key in ("value", "low", "high")] if found else []
            assert figures == expected
            assert not found or int(count) == found[0]["n"]
            seen += len(figures)
    assert seen == 15


def test_the_verdict_and_its_figures_are_those_of_the_file(made):
    path, scores = made
    assert scores["verdict"] in path.read_text()


def test_the_library_of_the_hub_reads_every_result(made):
    path, scores = made
    _, results = model_index_to_eval_results(metadata_load(path)["model-index"])
    trained = {(one["task"], one["metric"]): one["value"] for one in scores["trained"]["scores"]}
    read = {(one.dataset_type, one.metric_type): one.metric_value for one in results}
    left_out = {"alignment", "uniformity"}
    assert read == {k: round(v, 2) for k, v in trained.items() if k[0] != "geometry" and k[1] not in left_out}
    kinds = {one.dataset_type: one.task_type for one in results}
    assert {kinds[task] for task in kinds if task.startswith("sts")} == {"sentence-similarity"}
    assert kinds["retrieval"] == "text-retrieval"
    assert ModelCard.load(path).data.language is None  # of a text nobody named one


def test_a_card_claims_no_licence_and_names_no_folder_of_a_machine(made):
    text = made[0].read_text()
    assert "license" not in ModelCard(text).data.to_dict()
    assert "/home/somebody" not in text.partition("## Repeat it")[0]
    assert " --method simcse " in text


def test_a_card_names_base_and_data_sets_of_the_hub_and_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "tickets").write_text("one\n")
    names = ["owner/news/2024:train", "owner/news", "texts/tickets", "notes/all.txt", "pydocs"]
    data = ModelCard(card.front_matter("tickets", [], base="owner/encoder", texts=names)).data
    assert data.datasets == ["owner/news"]
    assert data.base_model == "owner/encoder"
    data = ModelCard(card.front_matter("tickets", [], base="builtin", texts=["pydocs"])).data
    assert data.datasets is None
    assert data.base_model is None


def test_a_run_without_scores_says_so(tmp_path):
    folder = write_run(tmp_path / "run", scored=False)
    (folder / "model").mkdir(exist_ok=True)
    card.write_run_card(Run(folder), {"verdict": "Cannot tell: too few documents."})
    text = (folder / "model" / "README.md").read_text()
    assert "Nothing was measured" in text
    assert "model-index" not in metadata_load(folder / "model" / "README.md")
