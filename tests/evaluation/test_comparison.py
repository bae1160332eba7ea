"""One answer to "is A better than B?": against closed forms, Student's t and simulations."""

import numpy as np
import pytest
from scipy import stats

from selfsent.errors import UserError
from selfsent.evaluation.comparison import average_seeds, compare_results, compare_scores, compare_settings, decision_of
from selfsent.evaluation.score import Results, Score
from selfsent.evaluation.suite import read_suite

ROWS = np.random.default_rng(0).normal(size=1001)


def score(value, replicates=None, task="a", **protocol):
    drawn = None if replicates is None else np.array(replicates, float)
    return Score(task=task, split="test", metric="m", value=value, n=9, replicates=drawn, protocol=protocol)


def recipe(*values):
    """Scores of seeds that the rows do not matter to."""
    return [score(value, [value] * 5) for value in values]


def results(*given, **settings):
    return Results(scores=[score(*given, **settings)])


@pytest.mark.parametrize(("shift", "decision"), [(3, "better"), (-3, "worse"), (1, "cannot tell")])
def test_two_models_are_decided_by_the_percentiles_of_their_paired_replicates(shift, decision):
    before, after = score(50.0, 50 + 10 * ROWS), score(50.0 + shift, 50 + 10 * ROWS + shift + ROWS[::-1])
    compared = compare_scores(after, before)
    low, high = np.percentile(shift + ROWS[::-1], (2.5, 97.5))
    assert (compared.before, compared.after, compared.value) == (50, 50 + shift, shift)
    assert (compared.low, compared.high) == pytest.approx((low, high))
    assert compared.above == np.mean(ROWS + shift > 0)
    assert (compared.decision, compared.n, compared.seeds, compared.reason) == (decision, 9, 1, "")


def test_an_interval_that_ends_at_zero_decides_nothing():
    assert [decision_of(-1, 0), decision_of(0, 1), decision_of(0, 0)] == ["cannot tell"] * 3


def test_a_model_does_not_differ_from_itself():
    one = score(50.0, ROWS)
    compared = compare_scores(one, one)
    assert (compared.value, compared.low, compared.high, compared.above) == (0, 0, 0, 0)
    assert compared.decision == "cannot tell"


@pytest.mark.parametrize(
    ("after", "before", "gaps"),
    [
        ((5.0, 7.0, 8.0), (4.0, 4.0, 7.0), (1, 3, 1)),
        ((1.0, 2.0, 6.0), (1.0,), (0, 1, 5)),  # one model counts with every seed of the other
        ((1.0,), (1.0, 2.0, 6.0), (0, -1, -5)),
    ],
)
def test_recipes_are_compared_by_students_t_over_the_gaps_of_their_seeds(after, before, gaps):
    compared = compare_scores(recipe(*after), recipe(*before))
    low, high = stats.t.interval(0.95, df=2, loc=np.mean(gaps), scale=stats.sem(gaps))
    assert (compared.value, compared.low, compared.high) == pytest.approx((np.mean(gaps), low, high))
    assert compared.p == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)
    assert (compared.seeds, compared.above, compared.decision) == (3, None, "cannot tell")


@pytest.mark.parametrize("seeds", [1, 2])
def test_below_three_seeds_a_recipe_is_not_judged(seeds):
    compared = compare_scores(recipe(*[9.0, 9.1][:seeds]), recipe(*[1.0, 1.1][:seeds]))
    assert (compared.value, compared.low, compared.decision) == (pytest.approx(8), None, "cannot tell")
    assert compared.reason == f"3 seeds are needed, and there {'is one' if seeds == 1 else 'are 2'}"


def test_scores_without_resamples_show_nothing():
    compared = compare_scores(score(9.0), score(1.0))
    assert (compared.value, compared.low, compared.decision) == (8, None, "cannot tell")
    assert compared.reason == "the scores have no bootstrap resamples"


def test_scores_of_other_data_are_refused():
    with pytest.raises(UserError, match="its data is x in one result and y in the other"):
        compare_scores(score(1.0, ROWS, data="x"), score(2.0, ROWS, data="y"))


def test_numbers_of_seeds_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="3 and 2 seeds cannot be paired"):
        compare_scores(recipe(1.0, 2.0, 3.0), recipe(1.0, 2.0))


def test_a_reason_withholds_a_decision_and_keeps_the_figures():
    better, worse = (compare_scores(score(50.0 + shift, ROWS + shift), score(50.0, ROWS)) for shift in (5, -5))
    withheld = better.undecided("single lines show damage alone", unless="worse")
    assert (withheld.decision, withheld.reason) == ("cannot tell", "single lines show damage alone")
    assert (withheld.value, withheld.low) == (better.value, better.low)
    assert worse.undecided("single lines show damage alone", unless="worse") is worse


@pytest.mark.parametrize(
    ("shift", "names", "reason", "said"),
    [
        (2, None, "", "Better. Over 7 tests: 52.0 after against 50.0 before, a difference of +2.0"),
        (-2, None, "", "Worse, do not use it. Over 7 tests: 48.0 after against 50.0 before, a difference of -2.0"),
        (
            2,
            None,
            "it has read them",
            "Cannot tell: it has read them. Over 7 tests: 52.0 after against 50.0 before, a ",
        ),
        (2, ("B", "A"), "", "B is better than A. Over 7 tests: 52.0 against 50.0, a difference of +2.0"),
        (-2, ("B", "A"), "", "B is worse than A. Over 7 tests: 48.0 against 50.0, a difference of -2.0"),
        (2, ("B", "A"), "it has read them", "Cannot tell whether B is better than A: it has read them. Over 7 tests: "),
    ],
)
def test_the_sentence_says_decision_reason_and_figures(shift, names, reason, said):
    compared = compare_scores(score(50.0 + shift, [shift] * 9), score(50.0, [0] * 9))
    compared = compared.undecided(reason) if reason else compared
    sentence = compared.sentence("Over 7 tests", names)
    assert sentence.startswith(said)
    assert sentence.endswith(f"(95 % interval {shift:+.1f} to {shift:+.1f}).")


def test_the_sentence_of_seeds_says_their_number_and_deviation():
    compared = compare_scores(recipe(10.0, 11.0, 12.0), recipe(1.0))
    assert compared.sentence() == (
        "Better. 11.0 after against 1.0 before, mean of 3 seeds (deviation 1.0), a difference of +10.0 "
        "(95 % interval +7.5 to +12.5)."
    )


def test_every_score_with_replicates_of_two_results_is_compared():
    after = Results(scores=[score(2.0, ROWS + 1), score(3.0, task="b"), score(4.0, ROWS, task="c")])
    before = Results(scores=[score(1.0, ROWS), score(3.0, task="b")])
    (compared,) = compare_results(after, before)
    assert compared.key == after.scores[0].key
    assert compared == compare_scores(after.scores[0], before.scores[0])


def test_recipes_of_equal_quality_are_told_apart_in_one_case_of_twenty():
    rng = np.random.default_rng(0)
    wrong, trials = 0, 400
    for _ in range(trials):
        rows = rng.normal(size=200)  # the bootstrap's draws, the same for every model, as are the rows' own luck
        sides = [[Results(scores=[score(level, level + 0.5 * rows)]) for level in rng.normal(size=3)] for _ in range(2)]
        (compared,) = compare_results(*sides)
        wrong += compared.decision != "cannot tell"
    assert wrong / trials < 0.08  # a bootstrap over three seeds was wrong in 28 % of such cases


@pytest.mark.parametrize("numbers", [(2, 2), (3, 2), (3, 4), (2, 1), (0, 1)])
def test_numbers_of_seeds_that_show_nothing_are_refused(numbers):
    sides = [[Results(scores=[one]) for one in recipe(*[1.0] * number)] for number in numbers]
    with pytest.raises(UserError, match="give as many seeds of both, 3 or more, one model against 3 or more"):
        compare_results(*sides)


@pytest.mark.parametrize(
    "sides", [([results(1.0)] * 3, [results(1.0)] * 3), (results(1.0, [1.0]), results(1.0, [1.0], task="b"))]
)
def test_results_that_share_no_score_with_replicates_are_refused(sides):
    with pytest.raises(UserError, match="no score with bootstrap replicates is one of all these results"):
        compare_results(*sides)


def test_settings_are_decided_by_p_values_that_are_corrected_for_their_number():
    reference, far, near = recipe(1.0, 2.0, 3.0), recipe(11.0, 12.1, 13.0), recipe(1.5, 2.6, 3.7)
    first, second, third, none = compare_settings([reference, far, near, None], given_up=1)
    alone = [stats.ttest_1samp(gaps, 0).pvalue for gaps in ((10, 10.1, 10), (0.5, 0.6, 0.7))]
    assert none is None
    assert (first.p, first.decision) == (None, "cannot tell")
    assert (second.p, third.p) == pytest.approx((4 * alone[0], 3 * alone[1]))  # four begun: Holm
    assert (second.decision, third.decision) == ("better", "better" if 3 * alone[1] < 0.05 else "cannot tell")
    low, high = stats.t.interval(1 - 0.05 / 4, df=2, loc=0.6, scale=stats.sem((0.5, 0.6, 0.7)))
    assert (third.low, third.high) == pytest.approx((low, high))


def test_the_mean_of_seeds_has_students_interval_where_rows_do_not_matter():
    joined = average_seeds([results(value, [value] * 5) for value in (1.0, 2.0, 6.0)]).scores[0]
    low, high = stats.t.interval(0.95, df=2, loc=3, scale=np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert (joined.value, joined.low, joined.high) == pytest.approx((3, low, high))
    assert joined.protocol == {"seeds": 3, "spread over seeds": np.std([1, 2, 6], ddof=1)}


def test_two_seeds_have_no_interval():
    joined = average_seeds([results(1.0, [0.0, 2.0]), results(3.0, [3.0, 3.0])]).scores[0]
    assert (joined.value, joined.low, joined.high, joined.replicates) == (2, None, None, None)


def test_one_seed_is_left_as_it_is_and_what_one_seed_lacks_is_left_out():
    one = results(1.0, [1.0])
    assert average_seeds([one]) is one
    assert average_seeds([one, results(1.0, [1.0], task="b")]).scores == []
    with pytest.raises(ValueError, match="no results"):
        average_seeds([])


@pytest.fixture
def two(senteval, encode):
    """A model, and the same with a little noise."""
    suite = read_suite(["sts13", "stsb"], senteval)
    vectors = encode(suite.sentences)
    noise = np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    return suite.score(vectors, bootstrap=200), suite.score(vectors + 1.5 * noise, bootstrap=200)


def test_a_paired_interval_is_narrower_than_that_of_two_independent_models(two):
    first, second = two
    compared = next(d for d in compare_results(first, second) if d.task == "stsb")
    assert compared.value == first.get("stsb").value - second.get("stsb").value
    assert compared.low < compared.value < compared.high
    assert compared.above == 1.0
    spread = [result.get("stsb").replicates.std() for result in two]
    assert (compared.high - compared.low) / 3.92 < 0.95 * np.hypot(*spread)


def test_the_average_is_compared_too(two):
    assert compare_results(*two)[-1].task == "average of 2: sts13 stsb"


def test_other_data_and_other_draws_are_refused(senteval, encode, two):
    suite = read_suite(["stsb"], senteval)
    other = suite.score(encode(suite.sentences), bootstrap=200, seed=1)
    with pytest.raises(UserError, match="stsb cannot be compared: its bootstrap is 200 resamples, seed 0"):
        compare_results(two[0], other)
