"""Curricula: what is eligible when by hand, golden plans, the laws, and how measures are combined."""

import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.test_tasks.planned import Planned, assert_shares_hold, rows
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curriculum import sortable
from tokmill.tasks.mixing.curves import Competence
from tokmill.tasks.mixing.stage import MixParams

KINDS = st.sampled_from(["linear", "sqrt", "exp", "step"])


def eligible_part(kind, start, until, stairs, progress):
    """The definition, apart from the code."""
    t = min(progress / until, 1.0)
    if kind == "sqrt":
        return math.sqrt(start**2 + (1 - start**2) * t)
    done = {"linear": t, "exp": 1 - math.exp(-3 * t)}
    done["step"] = min(math.floor(t * stairs + 1e-9), stairs - 1) / (stairs - 1)
    return start + (1 - start) * done[kind]


def graded(number, **params):
    """A source of equally long documents, of which number 0 is the easiest, by a column of its own."""
    grades = {"column:grade": {"a": [list(range(number))]}}
    curriculum = {"difficulty": "column:grade", **params.pop("curriculum")}
    return Planned({"a": [[10] * number]}, scores=grades, curriculum=curriculum, **params)


# Ten documents of ten tokens: document k has k tenths of the source before it, and document i of the plan is
# drawn when i tenths of the run have passed (ninths for exp, whose run has nine documents). Eligible are
# those with k / 10 ≤ f; c is 0.2.
GOLDEN = {
    # f = 0.2 + 0.8 t: .20 .28 .36 .44 .52 .60 .68 .76 .84 .92
    "linear": ([3, 3, 4, 5, 6, 7, 7, 8, 9, 10], [2, 1, 0, 4, 3, 5, 6, 7, 8, 9]),
    # f = √(0.04 + 0.96 t): .20 .37 .48 .57 .65 .72 .78 .84 .90 .95
    "sqrt": ([3, 4, 5, 6, 7, 8, 8, 9, 9, 10], [2, 1, 4, 0, 6, 5, 3, 7, 8, 9]),
    # f = 0.2 + 0.8 (1 - e^(-3t)): .20 .43 .59 .71 .79 .85 .89 .92 .94
    "exp": ([3, 5, 6, 8, 8, 9, 9, 10, 10], [2, 1, 4, 6, 0, 5, 7, 3, 9]),
    # five stairs of 0.2: .2 .2 .4 .4 .6 .6 .8 .8 1 1
    "step": ([3, 3, 5, 5, 7, 7, 9, 9, 10, 10], [2, 1, 0, 4, 6, 3, 5, 7, 8, 9]),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_what_is_eligible_and_what_is_drawn_by_hand(kind):
    eligible, order = GOLDEN[kind]
    shares = Competence(kind, Decimal("0.2"), stairs=5).eligible(np.arange(len(eligible)) / len(eligible))
    assert [sum(k / 10 <= share + 1e-9 for k in range(10)) for share in shares.tolist()] == eligible
    curriculum = {"competence": kind, "start": 0.2, "stairs": 5}
    found = graded(10, curriculum=curriculum, total_tokens=10 * len(eligible), seed=1)
    assert found.plan.document.tolist() == order
    assert all(document < number for document, number in zip(order, eligible, strict=True))


def test_a_competence_of_everything_is_a_shuffle_of_whole_epochs():
    found = graded(50, curriculum={"start": 1.0}, max_repetition=3.0)
    documents = found.plan.document.reshape(3, 50)
    assert [sorted(epoch) for epoch in documents.tolist()] == [list(range(50))] * 3
    assert len({tuple(epoch) for epoch in documents.tolist()}) == 3
    assert found.plan.epoch.tolist() == [0] * 50 + [1] * 50 + [2] * 50


def parts_of(lengths, difficulties):
    """For each document the part of all tokens that is in strictly easier ones: a lower bound of its own."""
    order = np.argsort(difficulties, kind="stable")
    before = np.concatenate([[0], np.cumsum(np.array(lengths)[order])])
    firsts = np.searchsorted(np.array(difficulties)[order], difficulties, side="left")
    return before[firsts] / sum(lengths)


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=50),
    KINDS,
    st.integers(1, 10),
    st.integers(1, 10),
    st.sampled_from([1.0, 1.5, 3.0]),
    st.integers(0, 99),
)
@example([17, 8, 5, 7, 8, 10], "linear", 1, 5, 1.0, 2)
def test_nothing_is_drawn_before_it_is_eligible(lengths, kind, start, until, repetition, seed):
    rules = {"difficulty": "length", "competence": kind, "start": start / 10, "until": until / 10}
    try:
        found = Planned(
            {"a": [lengths], "b": [[5] * 9]}, 20, curriculum=rules, seed=seed, max_repetition=repetition
        )
    except MixingError:  # too little is eligible in the beginning: another test's subject
        return
    assert_shares_hold(found)
    run = float(found.curves.end)
    parts = parts_of(lengths, lengths)
    out, times = 0, Counter()
    for source, _, document, epoch, num_tokens in rows(found.plan):
        if source == 0:
            progress = min(1.0, (out + 1) / run + 1e-9)  # to the token
            assert parts[document] <= eligible_part(kind, start / 10, until / 10, 10, progress) + 1e-9
            assert epoch == times[document]
            times[document] += 1
        out += num_tokens
    assert max(times.values()) <= math.ceil(repetition)
    assert all(account.balanced for account in found.accounts)


def test_documents_are_picked_as_from_an_urn():
    """Their places are distributed as if each next one of those that are eligible were drawn by lot."""
    number, runs = 40, 150
    random = np.random.default_rng(3)
    places = np.zeros((2, runs, number))
    for run in range(runs):
        left = list(range(number))
        for k in range(number):
            share = eligible_part("sqrt", 0.3, 1, 0, k / number)
            eligible = [document for document in left if document / number <= share + 1e-12]
            places[0, run, left.pop(left.index(random.choice(eligible)))] = k
        rules = {"competence": "sqrt", "start": 0.3}
        places[1, run, graded(number, curriculum=rules, seed=run).plan.document] = np.arange(number)
    means, spreads = places.mean(axis=1), places.std(axis=1)
    # the standard error of a difference of two means is about 1 place; 40 of them stay below four of it
    assert np.abs(means[0] - means[1]).max() < 4
    assert np.abs(spreads[0] - spreads[1]).max() < 3


def test_easy_to_hard_goes_through_a_source_again():
    rules = {"difficulty": "length", "order": "easy_to_hard"}
    plan = Planned({"a": [[1, 2, 3, 4]]}, curriculum=rules, total_tokens=27, max_repetition=3.0).plan
    lengths = plan.num_tokens.tolist()
    assert lengths == [1, 2, 3, 4, 1, 2, 3, 4, *sorted(lengths[8:])]
    assert plan.epoch.tolist() == [0] * 4 + [1] * 4 + [2] * (len(plan) - 8)


def easiest_first(scores, difficulty, number):
    rules = {"difficulty": difficulty, "order": "easy_to_hard"}
    return Planned({"a": [[10] * number]}, scores=scores, curriculum=rules).plan.document.tolist()


def test_measures_are_combined_by_rank():
    # ranks by x: 0 1/4 2/4 3/4 of documents 0 1 2 3; by y (its scale is of no matter): 3/4 0 1/4 2/4.
    # x + y: 3/4 1/4 3/4 5/4; x + 3y: 9/4 1/4 5/4 9/4
    scores = {"column:x": {"a": [[1, 2, 3, 4]]}, "column:y": {"a": [[9e9, -5, 0, 7]]}}
    assert easiest_first(scores, ["column:x", "column:y"], 4)[0] == 1
    assert easiest_first(scores, ["column:x", "column:y"], 4)[3] == 3
    assert easiest_first(scores, {"column:x": 1, "column:y": 3}, 4)[:2] == [1, 2]


def test_a_negative_weight_turns_a_measure_round_and_a_missing_number_is_hard_either_way():
    scores = {"column:x": {"a": [[2, math.nan, 1, 3]]}, "column:same": {"a": [[0, 0, 0, 0]]}}
    assert easiest_first(scores, {"column:x": 1}, 4) == [2, 0, 3, 1]
    assert easiest_first(scores, {"column:x": -1}, 4) == [3, 0, 2, 1]
    assert easiest_first(scores, {"column:x": -1, "column:same": 1}, 4) == [3, 0, 2, 1]


def test_compression_is_hard_at_both_ends():
    same = dict.fromkeys(("symbols", "repetition", "decoding_errors"), [0.0] * 5)
    scores = {"noise": {"a": [{**same, "compression": [0.1, 0.3, 0.5, 0.7, 0.9]}]}}
    # |2r - 1| of ranks 0 .2 .4 .6 .8: 1 .6 .2 .2 .6
    order = easiest_first(scores, "noise", 5)
    assert set(order[:2]) == {2, 3}
    assert order[4] == 0


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
def test_numbers_sort_as_their_keys_do(values):
    array = np.array(values, dtype=np.float32)
    assert array[np.argsort(sortable(array), kind="stable")].tolist() == sorted(array.tolist())


def test_a_curriculum_that_lets_in_too_little_says_what_would_do():
    # until t = 0.1 a tenth is eligible; the whole run of 100 tokens asks for more just before: 1 of 10 × 1
    rules = {"competence": "step", "start": 0.1, "stairs": 2}
    with pytest.raises(MixingError) as raised:
        graded(10, curriculum=rules, total_tokens=100)
    problem, feasible = str(raised.value).split(". Feasible: ")
    for fact in ("curriculum", "'a'", "total_tokens=100", "drawn 5 times", "1 times"):
        assert fact in problem
    assert feasible == (
        "total_tokens=20 at these shares; or max_repetition of at least a = 5 at this total; "
        "or curriculum.start of at least 0.5"
    )
    for better in ({"total_tokens": 20}, {"max_repetition": 5.0}):
        graded(10, curriculum=rules, **{"total_tokens": 100, **better})
    graded(10, curriculum={**rules, "start": 0.5}, total_tokens=100)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"difficulty": "size"}, "difficulty 'size' must be one of length, noise, perplexity or column:NAME"),
        ({"difficulty": {}}, "names no measure"),
        ({"difficulty": {"length": 0}}, "difficulty.length=0 must not be 0"),
        ({"difficulty": {"length": math.nan}}, "finite number"),
        ({"difficulty": "column:"}, "must be one of"),
        ({"difficulty": "length", "start": 1.5}, "less than or equal to 1"),
        ({"difficulty": "length", "until": 0}, "greater than 0"),
        ({"difficulty": "length", "competence": "step", "stairs": 1}, "greater than or equal to 2"),
        ({"difficulty": "length", "competence": "cubic"}, "'linear', 'sqrt', 'exp' or 'step'"),
    ],
)
def test_curricula_that_make_no_sense_are_refused(rules, message):
    with pytest.raises(ValidationError, match=message):
        MixParams(curriculum=rules)
    with pytest.raises(MixingError, match=r"curriculum\.sources name an unknown source 'x'"):
        graded(10, curriculum={"sources": ["x"]})
