"""Equations 1 to 8 against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from riprap.faults.metrics import (
    data_dependency,
    fit_line,
    local_errors,
    notices,
    outage_impact,
    recover,
    repeated_quality,
)
from riprap.intervals import interval_of


def test_quality_is_the_mean_of_faulty_scores_over_the_mean_of_golden_ones() -> None:
    # (2 + 4) / 2 = 3, over (5 + 7) / 2 = 6.
    assert repeated_quality(np.array([2.0, 4.0]), np.array([5.0, 7.0])).mean() == 0.5


def test_quality_is_unknown_where_golden_runs_score_nothing() -> None:
    quality = repeated_quality(np.array([1.0, 0.0]), np.array([0.0, 0.0]))

    assert math.isnan(quality[0])
    assert quality[1] == 1.0


def test_the_impact_of_outages_is_the_mean_of_rank_correlations() -> None:
    # Ranks of the second row are 1 3 2 4: 1 - 6 (0 + 1 + 1 + 0) / (4 * 15) = 0.8.
    quality = np.array([[0.9, 0.7, 0.6, 0.1], [0.1, 0.3, 0.2, 0.9]])

    C, each = outage_impact([1, 2, 4, 8], quality)

    assert each == pytest.approx((-1.0, 0.8))
    assert pytest.approx(-0.1) == C


def test_an_outage_that_changes_nothing_has_no_impact() -> None:
    assert outage_impact([1, 2], np.array([[1.0, 1.0]])) == (0.0, (0.0,))


def test_an_offset_that_is_unknown_is_left_out() -> None:
    C, each = outage_impact([1, 2], np.array([[1.0, 0.5], [math.nan, 1.0]]))

    assert pytest.approx(-1.0) == C
    assert math.isnan(each[1])


def test_data_dependency_is_the_deviation_over_offsets() -> None:
    found = data_dependency([np.array([0.5, 1.5]), np.array([2.5, 3.5])])

    # Qualities 1 and 3: a sample's standard deviation of the square root of 2.
    assert found.deviation == pytest.approx(math.sqrt(2))
    # Between: 2 (1 - 2)^2 + 2 (3 - 2)^2 = 4 over 1; within: 4 * 0.5^2 = 1 over 2; F = 8, p = 0.106.
    assert found.anova.outcome == "accept"
    assert found.anova.p == pytest.approx(0.1056, abs=1e-4)


def test_offsets_that_matter_are_rejected_as_one() -> None:
    assert data_dependency([np.array([1.0, 1.1, 0.9]), np.array([5.0, 5.1, 4.9])]).anova.outcome == "reject"


def test_repetitions_that_do_not_vary_are_said_to_be_so() -> None:
    assert data_dependency([np.array([1.0, 1.0]), np.array([2.0, 2.0])]).anova.outcome == "constant"


def test_what_is_the_same_everywhere_depends_on_nothing() -> None:
    found = data_dependency(list(np.zeros((3, 4))))

    assert (found.deviation, found.anova.outcome, found.anova.p) == (0.0, "accept", 1.0)


def test_a_local_error_is_relative_to_golden_runs() -> None:
    faulty = np.array([[1.0, 4.0, 0.0, 2.0], [3.0, 4.0, 0.0, 2.0]])
    golden = np.array([[4.0, 2.0, 0.0, 0.0], [4.0, 2.0, 0.0, 0.0]])

    assert local_errors(faulty, golden, signed=True).tolist() == [-0.5, 1.0, 0.0, 1.0]
    assert local_errors(faulty, golden).tolist() == [0.5, 1.0, 0.0, 1.0]


def test_recovery_is_where_nine_of_ten_wrong_sections_are_past() -> None:
    # Ten wrong sections, the last far away: it is the ninth that counts, in section 9.
    errors = np.array([0.5] * 9 + [0.0] * 20 + [0.5])

    assert recover(errors) == (9, pytest.approx(9 * 0.25))


def test_impact_is_the_sum_of_squares_above_the_threshold_up_to_recovery() -> None:
    # Four wrong ones: 0.9 * 4 = 3.6, so all four, the last in section 6. 0.03 is not above 3%.
    errors = np.array([1.0, -0.5, 0.03, 0.0, 0.2, 0.1])

    assert recover(errors) == (6, pytest.approx(1.0 + 0.25 + 0.04 + 0.01))


def test_what_is_never_wrong_needs_no_recovery() -> None:
    assert recover(np.array([0.01, -0.02])) == (0, 0.0)


def test_a_score_that_does_not_move_notices_nothing() -> None:
    luck = np.random.default_rng(1)
    golden = luck.normal(10, 1, (60, 3))

    assert not notices(golden[::3], golden)
    assert notices(golden[::3] + np.array([0.0, 9.0, 0.0]), golden)


def test_too_few_runs_for_a_test_are_asked_whether_they_differ() -> None:
    assert notices(np.array([[1.0, 2.0]]), np.array([[1.0, 3.0]]))
    assert not notices(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))


def test_a_line_is_fitted_where_outage_and_quality_go_together() -> None:
    line = fit_line([100, 200, 400], np.array([1.1, 1.2, 1.4]))

    assert line is not None
    assert (line.start, line.slope, line.share) == pytest.approx((1.0, 0.001, 1.0))
    assert str(line) == "QS = 1 + 0.001 x"
    assert fit_line([1, 2, 3, 4], np.array([1.0, 0.5, 1.1, 0.9])) is None


def test_an_interval_is_students() -> None:
    # Mean 2, standard error 1 / sqrt(3); t of two degrees of freedom at 97.5% is 4.303.
    low, high = interval_of(np.array([1.0, 2.0, 3.0]))

    assert (low, high) == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-3)
    assert interval_of(np.array([5.0])) == (5.0, 5.0)
