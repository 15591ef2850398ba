"""Training says what memory it needs, and refuses what does not fit; what it reads is weighted and pruned."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import MachineError
from tokmill.tasks.formats import counts as files
from tokmill.tasks.formats.counts import Balance, Counts, write_counts
from tokmill.tasks.train.learning import learn
from tokmill.tasks.train.memory import available_memory, fitting_size
from tokmill.tasks.train.reading import TextSize, Weighted, largest_size
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer import PretokenCounts

WORDS = st.dictionaries(st.binary(min_size=1, max_size=3), st.integers(1, 50), min_size=1, max_size=30)
CHECKOUT = Path(__file__).parents[2]
PEAK = """
import json, sys
from pathlib import Path
from tests.peak import peak_bytes
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.formats.counts import Counts
from tokmill.tasks.train.learning import learn
from tokmill.tasks.train.memory import needed_memory
from tokmill.tasks.train.reading import largest_size
from tokmill.tasks.train.stage import TrainParams
params, folder = TrainParams.model_validate_json(sys.argv[1]), Path(sys.argv[2])
said = needed_memory(params, largest_size(Counts.open(folder), Balance.open(folder)))
learn(params, folder, folder, [params.vocab_size])
print(json.dumps([said, peak_bytes()]))
"""


def write_corpus(
    folder: Path,
    sources: dict[str, dict[bytes, int]],
    params: TrainParams,
    factors: dict[str, float] | None = None,
    resolution: int = 1,
) -> Path:
    """Write counts and a balance into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    counted = []
    for source, words in sources.items():
        totals = write_counts(folder / f"{source}.parquet", PretokenCounts.from_dict(words))
        statistics = files.CountsStatistics(num_documents=1, num_bytes=1, **totals._asdict())
        counted.append(files.CountedSource(source=source, statistics=statistics))
    files.CountsManifest(cut=params.cut, sources=counted).save(folder)
    shares = {"num_documents": 1, "num_bytes": 1, "natural_share": 0.5, "share": 0.5, "capped": False}
    given = [
        files.BalancedSource(source=name, factor=(factors or {}).get(name, 1), **shares) for name in sources
    ]
    rule = {"method": "temperature", "temperature": 1.0, "unit": "bytes", "max_repetition": None}
    Balance(**rule, total=2, resolution=resolution, sources=given).save(folder)
    return folder


def weights_of(folder: Path, min_frequency: int = 1) -> tuple[Weighted, TextSize]:
    counts, balance = Counts.open(folder), Balance.open(folder)
    return Weighted(counts, balance, min_frequency), largest_size(counts, balance)


@given(WORDS, WORDS, st.integers(0, 3), st.integers(1, 40))
def test_sources_are_weighted_added_up_and_pruned(
    tmp_path_factory: pytest.TempPathFactory,
    first: dict[bytes, int],
    second: dict[bytes, int],
    factor: int,
    least: int,
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    corpus = {"a": first, "b": second}
    write_corpus(folder, corpus, TrainParams(), {"a": factor, "b": 0.5}, resolution=2)
    weighted, largest = weights_of(folder, least)
    size = weighted.size()
    found = weighted.read(size)

    expected = Counter[bytes]()
    for words, scale in ((first, 2 * factor), (second, 1)):
        expected.update({word: count * scale for word, count in words.items() if scale})
    kept = {word: count for word, count in expected.items() if least == 1 or count >= 2 * least}
    assert found.to_dict() == dict(sorted(kept.items()))
    starts = [byte for word in kept for byte in word if byte & 0xC0 != 0x80]
    assert size == (len(kept), sum(map(len, kept)), len(starts))
    assert largest.num_distinct >= size.num_distinct
    assert largest.num_bytes >= size.num_bytes
    assert weighted.amounts["b"] == sum(len(word) * count for word, count in second.items())


def test_leaving_rare_pretokens_out_is_training_on_the_others(tmp_path: Path) -> None:
    words = {f"word{index} {index % 7}".encode(): 1 + index % 4 for index in range(500)}
    params = TrainParams(vocab_size=300, min_pretoken_frequency=3)
    others = {word: count for word, count in words.items() if count >= 3}
    pruned = learn(params, *[write_corpus(tmp_path / "all", {"a": words}, params)] * 2, [300])
    plain = params.model_copy(update={"min_pretoken_frequency": 1})
    expected = learn(plain, *[write_corpus(tmp_path / "others", {"a": others}, params)] * 2, [300])

    assert pruned.tokenizers[0].merges == expected.tokenizers[0].merges
    assert pruned.figures == expected.figures
    assert pruned.figures["num_distinct_pretokens"] == len(others) < len(words)


def test_what_does_not_fit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    params = TrainParams()
    weighted, _ = weights_of(write_corpus(tmp_path, {"a": {b"x": 1}}, params))
    with pytest.raises(MachineError, match=r"10,000,000,000,000 distinct .* min_pretoken_frequency=2"):
        fitting_size(params, weighted, TextSize(10**13, 10**14, 10**14))


def test_what_may_not_fit_is_counted_exactly(tmp_path: Path) -> None:
    params = TrainParams()
    weighted, _ = weights_of(write_corpus(tmp_path, {"a": {b"x": 1, b"y": 1}, "b": {b"x": 1}}, params))
    assert fitting_size(params, weighted, TextSize(10**13, 10**14, 10**14)) == (2, 2, 2)


def test_room_is_what_machine_and_control_group_leave(tmp_path: Path) -> None:
    groups, unknown = tmp_path / "groups", tmp_path / "none"
    groups.mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert available_memory(tmp_path, unknown) == 8000 << 10

    (groups / "memory.max").write_text("max\n")
    (groups / "memory.current").write_text("1000000\n")
    assert available_memory(tmp_path, groups) == 8000 << 10

    (groups / "memory.max").write_text("3000000\n")
    (groups / "memory.stat").write_text("anon 600000\ninactive_file 400000\n")
    assert available_memory(tmp_path, groups) == 2_400_000

    (groups / "memory.current").write_text("4000000\n")
    assert available_memory(tmp_path, groups) == 0
    assert available_memory(unknown, unknown) > 1 << 28


@pytest.mark.slow
@pytest.mark.parametrize("family", ["byte_bpe", "unigram", "wordpiece"])
def test_the_peak_is_about_what_was_said(tmp_path: Path, family: str) -> None:
    stems = [f" {chr(97 + index % 26)}{index * 7919 % 100_003:x}" for index in range(2_000)]
    words = {f"{stem}{end:o}ing".encode(): 1 + end % 3 for stem in stems for end in range(64, 164)}
    params = TrainParams(family=family, vocab_size=1000)
    write_corpus(tmp_path, {"a": words}, params)
    command = [sys.executable, "-c", PEAK, params.model_dump_json(), str(tmp_path)]
    done = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    said, peak = json.loads(done.stdout)
    assert 0.6 < peak / said < 1.6
