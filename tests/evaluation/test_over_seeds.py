"""Seeds joined and recipes compared over them: against Student's t, and against a simulation."""

import numpy as np
import pytest
from scipy import stats

from selfsent.errors import UserError
from selfsent.evaluation.over_seeds import compare_seeds, over_seeds
from selfsent.evaluation.score import Results, Score


def scored(value, replicates=None, task="a", **protocol):
    drawn = None if replicates is None else np.array(replicates, float)
    score = Score(task=task, split="test", metric="m", value=value, n=9, replicates=drawn, protocol=protocol)
    return Results(scores=[score])


def test_the_mean_of_seeds_has_students_interval_where_rows_do_not_matter():
    joined = over_seeds([scored(value, [value] * 5) for value in (1.0, 2.0, 6.0)]).scores[0]
    low, high = stats.t.interval(0.95, df=2, loc=3, scale=np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert (joined.value, joined.low, joined.high) == pytest.approx((3, low, high))
    assert joined.protocol == {"seeds": 3, "spread over seeds": np.std([1, 2, 6], ddof=1)}


def test_two_seeds_have_no_interval():
    joined = over_seeds([scored(1.0, [0.0, 2.0]), scored(3.0, [3.0, 3.0])]).scores[0]
    assert (joined.value, joined.low, joined.high, joined.replicates) == (2, None, None, None)


def test_one_seed_is_left_as_it_is_and_what_one_seed_lacks_is_left_out():
    one = scored(1.0, [1.0])
    assert over_seeds([one]) is one
    assert over_seeds([one, scored(1.0, [1.0], task="b")]).scores == []
    with pytest.raises(ValueError, match="no results"):
        over_seeds([])


def test_recipes_are_compared_by_students_t_over_the_gaps_of_their_seeds():
    first, second = ([scored(value, [value] * 5) for value in side] for side in ((5.0, 7.0, 8.0), (4.0, 4.0, 7.0)))
    (difference,) = compare_seeds(first, second)
    low, high = stats.t.interval(0.95, df=2, loc=5 / 3, scale=np.std([1, 3, 1], ddof=1) / np.sqrt(3))
    assert (difference.value, difference.low, difference.high) == pytest.approx((5 / 3, low, high))
    assert difference.above is None


def test_one_model_counts_with_every_seed_of_the_other():
    (difference,) = compare_seeds([scored(v, [v] * 5) for v in (1.0, 2.0, 6.0)], [scored(1.0, [1.0] * 5)])
    low, high = stats.t.interval(0.95, df=2, loc=2, scale=np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert (difference.value, difference.low, difference.high) == pytest.approx((2, low, high))


def test_recipes_of_equal_quality_are_told_apart_in_one_case_of_twenty():
    rng = np.random.default_rng(0)
    wrong, trials = 0, 400
    for _ in range(trials):
        rows = rng.normal(size=200)  # the bootstrap's draws, the same for every model, as are the rows' own luck
        sides = [[scored(level, level + 0.5 * rows) for level in rng.normal(size=3)] for _ in range(2)]
        (difference,) = compare_seeds(*sides)
        wrong += not difference.low <= 0 <= difference.high
    assert wrong / trials < 0.08  # a bootstrap over three seeds was wrong in 28 % of such cases


@pytest.mark.parametrize("numbers", [(2, 2), (3, 2), (3, 4), (2, 1), (0, 1)])
def test_numbers_of_seeds_that_show_nothing_are_refused(numbers):
    sides = [[scored(1.0, [1.0, 1.0]) for _ in range(number)] for number in numbers]
    with pytest.raises(UserError, match="give as many seeds of both, 3 or more, one model against 3 or more"):
        compare_seeds(*sides)


def test_scores_of_other_data_or_without_resamples_are_refused():
    same = [scored(1.0, [1.0, 1.0], data="x") for _ in range(3)]
    with pytest.raises(UserError, match="its data is x in one result and y in the other"):
        compare_seeds(same, [*same[:2], scored(1.0, [1.0, 1.0], data="y")])
    with pytest.raises(UserError, match="no score with bootstrap replicates is one of every seed"):
        compare_seeds([scored(1.0)] * 3, [scored(1.0)] * 3)
