"""STS: the reading of SentEval's files, and correlations against closed forms and the authors' evaluator."""

import shutil

import numpy as np
import pytest

from selfsent.errors import UserError
from selfsent.evaluation import sts
from selfsent.evaluation.senteval import files
from selfsent.evaluation.sts import STS, SentencePairs


def made_of(golds):
    """A test set of sub-files with these gold scores; its texts do not matter."""
    parts = [
        SentencePairs(
            name=f"part{number}",
            left=[f"l{number}.{row}" for row in range(len(gold))],
            right=[f"r{number}.{row}" for row in range(len(gold))],
            gold=list(map(float, gold)),
        )
        for number, gold in enumerate(golds)
    ]
    return STS(name="sts99", split="test", parts=parts)


def at_cosines(cosines):
    """Vectors for left sides, then right sides, whose pairs have these cosines."""
    cosines = np.asarray(cosines, dtype=np.float64)
    left = np.tile([1.0, 0.0], (len(cosines), 1))
    return np.concatenate([left, np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)])


def points(task, vectors, resamples=0):
    scores = task.score(vectors, resamples=resamples, seed=0)
    return {(score.metric, score.aggregation): score for score in scores}


def copy(senteval, tmp_path):
    return shutil.copytree(senteval, tmp_path / "copy")


def test_order_within_sub_files_gives_mean_100_and_a_shift_between_them_less_for_all():
    task = made_of([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    scores = points(task, at_cosines([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9]), resamples=64)
    assert scores["spearman", "mean"].value == pytest.approx(100)
    assert scores["spearman", "wmean"].value == pytest.approx(100)
    # Ranks 1..10 against gold ranks 1.5, 3.5, ..., twice: covariance 40, variances 82.5 and 80.
    assert scores["spearman", "all"].value == pytest.approx(100 * 40 / np.sqrt(82.5 * 80))
    # Within a sub-file every resample is in perfect order, unless it drew one row five times.
    assert np.median(scores["spearman", "mean"].replicates) == pytest.approx(100)


def test_wmean_weights_sub_files_by_their_rows():
    task = made_of([[1, 2, 3, 4], [1, 2]])
    scores = points(task, at_cosines([0.1, 0.2, 0.3, 0.4, 0.9, 0.8]))
    assert scores["spearman", "mean"].value == pytest.approx(0)
    assert scores["spearman", "wmean"].value == pytest.approx(100 * (4 - 2) / 6)


def test_ties_share_the_average_rank():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    scores = points(made_of([[1, 2, 3, 4]]), at_cosines([0.1, 0.5, 0.5, 0.9]))
    assert scores["spearman", "all"].value == pytest.approx(100 * 4.5 / np.sqrt(4.5 * 5))


def test_one_file_has_no_mean_beside_all():
    assert set(points(made_of([[1, 2, 3]]), at_cosines([0.1, 0.2, 0.3]))) == {
        ("spearman", "all"),
        ("pearson", "all"),
    }


def test_correlations_are_those_of_the_authors_evaluator(golden):
    arrays = golden("senteval_relatedness")
    task = made_of([arrays[f"sts_{part}_y"] for part in "pqr"])
    vectors = np.concatenate([arrays[f"sts_{part}_{side}"] for side in "AB" for part in "pqr"])
    scores = points(task, vectors)
    for metric in ("spearman", "pearson"):
        for aggregation in ("all", "mean", "wmean"):
            expected = 100 * arrays[f"sts_all_{metric}_{aggregation}"]
            assert scores[metric, aggregation].value == pytest.approx(float(expected), abs=1e-4)


def test_a_zero_vector_is_similar_to_nothing():
    assert sts.cosine(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0.0]


def test_pairs_of_one_text_tie_whatever_their_length_and_direction():
    vectors = np.random.default_rng(0).normal(size=(500, 33)).astype(np.float32)
    assert set(sts.cosine(vectors, vectors)) == {1.0}


def test_a_collapsed_encoder_scores_zero_and_not_nan():
    scores = points(made_of([[1, 2, 3], [3, 1, 2]]), np.ones((12, 4)), resamples=8)
    assert {score.value for score in scores.values()} == {0.0}
    assert {(score.low, score.high) for score in scores.values()} == {(0.0, 0.0)}


def test_rows_without_a_gold_score_are_dropped_and_the_others_keep_theirs(senteval):
    task = sts.read_sts("sts15", senteval)
    assert len(task.gold) == 3000
    assert "left out" not in task.texts
    lines = (senteval / "STS/STS15-en-test/STS.input.belief.txt").read_text().splitlines()
    gold = (senteval / "STS/STS15-en-test/STS.gs.belief.txt").read_text().splitlines()
    expected = [(*line.split("\t"), float(score)) for line, score in zip(lines, gold, strict=True) if score]
    belief = next(part for part in task.parts if part.name == "belief")
    assert list(zip(belief.left, belief.right, belief.gold, strict=True)) == expected


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "stsb", "stsb-dev", "sickr", "sickr-dev"])
def test_a_task_has_the_known_number_of_pairs(senteval, name):
    known = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "stsb": 1379, "stsb-dev": 1500}
    task = sts.read_sts(name, senteval)
    assert len(task.gold) == {**known, "sickr": 4927, "sickr-dev": 500}[name]
    assert len(task.texts) == 2 * len(task.gold)


def test_the_sub_files_of_a_year_add_up_to_its_known_size():
    sizes = {name: sum(parts.values()) for name, parts in sts.YEARS.items()}
    assert sizes == {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}


def test_sick_keeps_case_and_joins_tokens_by_single_spaces(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    path = folder / "SICK/SICK_trial.txt"
    lines = path.read_text().split("\n")
    lines[1] = "7\tA  Man sings\tNobody   Sings \t3.5\tNEUTRAL"
    path.write_text("\r\n".join(lines))
    part = sts.read_sts("sickr-dev", folder).parts[0]
    assert (part.left[0], part.right[0], part.gold[0]) == ("A Man sings", "Nobody Sings", 3.5)


def test_a_line_separator_inside_a_text_does_not_cut_it(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    path = folder / "STS/STSBenchmark/sts-dev.csv"
    path.write_text(path.read_text().replace("sun", "sun\u2028moon", 1), encoding="utf-8")
    assert len(sts.read_sts("stsb-dev", folder).gold) == 1500


def test_a_missing_row_is_refused_with_both_counts(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    path = folder / "STS/STSBenchmark/sts-test.csv"
    path.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(UserError, match=r"sts-test\.csv has 1378 scored rows where 1379 are known"):
        sts.read_sts("stsb", folder)


def test_a_dropped_gold_score_is_refused_with_the_sub_file(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    path = folder / "STS/STS13-en-test/STS.gs.FNWN.txt"
    path.write_text("\n" + path.read_text().split("\n", 1)[1])
    with pytest.raises(UserError, match=r"STS\.input\.FNWN\.txt has 188 scored rows where 189 are known"):
        sts.read_sts("sts13", folder)


def test_texts_and_scores_of_different_length_are_refused_by_file(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    path = folder / "STS/STS13-en-test/STS.gs.OnWN.txt"
    path.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(UserError, match=r"STS\.input\.OnWN\.txt has 561 lines and STS\.gs\.OnWN\.txt .* 560"):
        sts.read_sts("sts13", folder)


def test_a_missing_sub_file_is_named(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    (folder / "STS/STS12-en-test/STS.gs.MSRvid.txt").unlink()
    with pytest.raises(UserError, match=r"STS12-en-test is incomplete: .*STS\.gs\.MSRvid\.txt is missing"):
        sts.read_sts("sts12", folder)


@pytest.mark.parametrize("line", ["only one text and no tab", "a\tb\tc\td\thigh\tone text\tanother"])
def test_a_line_of_another_shape_is_shown(senteval, tmp_path, line):
    folder = copy(senteval, tmp_path)
    path = folder / "STS/STSBenchmark/sts-dev.csv"
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(UserError, match=r"sts-dev\.csv has a line that is not two texts and a score"):
        sts.read_sts("stsb-dev", folder)


def test_bytes_that_are_not_utf8_are_refused_by_file(senteval, tmp_path):
    folder = copy(senteval, tmp_path)
    (folder / "SICK/SICK_trial.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match=r"SICK_trial\.txt is not UTF-8 at byte 3"):
        sts.read_sts("sickr-dev", folder)


def test_the_folder_is_found_from_itself_and_from_two_above(senteval):
    for given in (senteval, senteval.parent, senteval.parent.parent):
        assert files.find_folder(given) == senteval


def test_a_folder_without_data_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="holds no SentEval data: expected the folders STS and SICK"):
        files.find_folder(tmp_path)
    with pytest.raises(UserError, match="nowhere does not exist"):
        files.find_folder(tmp_path / "nowhere")


def test_the_fingerprint_sees_a_changed_text_and_a_changed_score(senteval):
    task = sts.read_sts("sickr-dev", senteval)
    part = task.parts[0]
    other_text = SentencePairs(name=part.name, left=["x", *part.left[1:]], right=part.right, gold=part.gold)
    other_gold = SentencePairs(name=part.name, left=part.left, right=part.right, gold=[9.0, *part.gold[1:]])
    prints = {STS(name="a", split="dev", parts=[p]).fingerprint for p in (part, other_text, other_gold)}
    assert len(prints) == 3


def test_the_public_sets_are_whole(data):
    folder = files.find_folder(data)
    assert [len(sts.read_sts(f"sts{year}", folder).gold) for year in (12, 13, 14, 15)] == [3108, 1500, 3750, 3000]
    assert [len(sts.read_sts(name, folder).gold) for name in ("stsb", "sickr")] == [1379, 4927]
