"""The format of numbers for people."""

import pytest

from tokmill.flows.figures import figure, key_figures, outcome_words, percentage, size, span
from tokmill.tasks.core.markdown import number
from tokmill.tasks.pages.page import table


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (812, "812 B"), (1024, "1.0 KiB"), (31_525_224, "30.1 MiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes_are_in_binary_units(num_bytes, text):
    assert size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-13469648.9, "–"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(seconds, text):
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((True, "yes"), (1234567, "1,234,567"), (3.14159, "3.142"), ("gpt2", "gpt2"), (0.5, "0.5")),
        *((0.000942138, "0.0009421"), (0.0000123, "0.0000123"), (123456.7, "123,457"), (-0.29969, "-0.2997")),
    ],
)
def test_values_are_the_same_on_pages(value, text):
    assert number(value) == text
    assert f">{text}</td>" in table("caption", [{"name": "x", "value": value}], {"name": "", "value": ""})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num_documents", 1932, "1,932 documents"),
        ("num_bytes", 2048, "2.0 KiB"),
        ("text_bytes", 2048, "2.0 KiB text"),
        ("bytes_per_token", 4.3123, "4.312 bytes per token"),
        ("vocab_size", 8192, "vocab size 8,192"),
        ("verdict", "passed", "verdict passed"),
        ("padding_share", 0.015, "padding share 1.50 %"),
        ("num_special_tokens", 1, "1 special token"),
    ],
)
def test_a_metric_s_form_follows_from_its_name(name, value, text):
    assert figure(name, value) == text


def test_what_is_empty_is_no_key_figure():
    metrics = {"num_tokens": 1000, "limited_by": ""}
    assert key_figures("mixture", metrics) == "1,000 tokens"
    assert key_figures("mixture", {**metrics, "limited_by": "web"}) == "1,000 tokens · limited by web"
    assert (
        key_figures("balance", {"method": "proportional", "num_capped": 0})
        == "method proportional · 0 capped"
    )


def test_key_figures_are_the_telling_ones_of_a_kind():
    metrics = {"num_sources": 3, "num_documents": 2, "num_bytes": 10, "num_shards": 1}
    assert key_figures("corpus", metrics) == "2 documents · 10 B · 1 shard"
    assert key_figures("corpus", {**metrics, "num_quarantined": 0}) == "2 documents · 10 B · 1 shard"
    assert (
        key_figures("corpus", {**metrics, "num_quarantined": 1})
        == "2 documents · 1 quarantined · 10 B · 1 shard"
    )


def test_key_figures_of_an_audit_say_what_is_lost_and_what_was_measured():
    metrics = {"bytes_per_token": 4.0, "fertility": 1.5, "unknown_share": 0.0, "text": "held_out"}
    said = "4 bytes per token · fertility 1.5 · on held-out text"
    assert key_figures("audit", metrics) == said
    lossy = key_figures("audit", {**metrics, "unknown_share": 0.053, "text": "corpus"})
    assert lossy == "4 bytes per token · unknown share 5.30 % · fertility 1.5"


@pytest.mark.parametrize("kind", ["usage", "card", "sweep_cell"])
def test_compression_is_not_shown_without_what_is_lost_for_it(kind):
    metrics = {"bytes_per_token": 4.5, "mixture_bytes_per_token": 4.5, "unknown_share": 0.0166}
    assert key_figures(kind, metrics).count("unknown share 1.66 %") == 1


def test_a_share_is_shown_as_nothing_or_all_only_if_it_is():
    shares = (0, 0.000003, 0.00996, 0.9999, 0.999982, 1)
    shown = ["0.00 %", "0.0003 %", "1.00 %", "99.99 %", "99.998 %", "100.00 %"]
    assert [percentage(share) for share in shares] == shown


def test_key_figures_of_another_kind_are_the_first_few():
    metrics = {"num_documents": 2, "num_bytes": 10, "vocab_size": 300, "seed": 1}
    assert key_figures("other", metrics) == "2 documents · 10 B · vocab size 300"


def test_outcomes_are_counted_only_where_they_differ():
    assert outcome_words({"made": 8, "cached": 0}) == "made"
    assert outcome_words({"made": 3, "cached": 5}) == "3 made, 5 cached"
