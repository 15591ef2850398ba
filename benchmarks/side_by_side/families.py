"""The command `families`: what is measured, and what is shown of it."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from side_by_side import tables, texts
from side_by_side.checks import SameDocuments
from side_by_side.family_encoders import MODEL
from side_by_side.names import FAMILY_ENCODERS, FAMILY_VOCABULARIES, OURS
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import compile_kernels
from side_by_side.reports import Report, progress
from side_by_side.rounds import Job, Limits, together
from side_by_side.texts import SHARED

_TEXTS = ("english", "code", "japanese", "chinese", "ntrex")
_PHASES = ("cold", "warm")
_TRAINING_MEGABYTES = 6
_FAMILIES = {"unigram": "unigram", "sentencepiece": "unigram", "sentencepiece-bpe": "char_bpe"}


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns the exit status."""
    names = [*options.text, *map(str, options.files)] or list(_TEXTS)
    vocabulary_names = options.vocab or list(FAMILY_VOCABULARIES)
    references = {FAMILY_VOCABULARIES[name] for name in vocabulary_names}
    chosen = {*OURS, *references, *(options.peer or FAMILY_ENCODERS)}
    report = Report("families", [side for side in FAMILY_ENCODERS if side in chosen], options.out)
    compile_kernels()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tokmill-benchmarks-") as made:
        for vocabulary in vocabulary_names:
            write_files(vocabulary, Path(made) / vocabulary)
            found = [
                each for name in names for each in _measure(name, vocabulary, chosen, options, Path(made))
            ]
            for phase in _PHASES:
                title = f"{vocabulary}: how many times as fast as a peer, {phase}, CPU time"
                report.section(title, tables.ratios(found, phase))
            report.section(f"{vocabulary}: figures", tables.figures(found, _PHASES))
            report.add(found)
            outcomes += found
    return report.finish(lambda plots: plots.speeds(outcomes, _PHASES, "encoded"))


def write_files(name: str, folder: Path) -> None:
    """Write the file of a vocabulary: a `tokenizer.json`, or a `.model`."""
    from tokmill import tokenizer

    if name == "bert":
        source = SHARED / "vocabs" / "bert_vocab.txt"
        if not source.is_file():
            sys.exit(
                f"benchmarks: no vocabulary {source}; say with TOKMILL_SHARED_DATA where the shared data is"
            )
        tokenizer.load(source).save(folder, format="huggingface")
        return
    in_model = name.startswith("sentencepiece")
    how = {"mode": "sentencepiece", "byte_fallback": True} if in_model else {"split_pattern": "gpt2"}
    progress("training", name)
    text = texts.load("english+code+ntrex", _TRAINING_MEGABYTES * 1_000_000)
    trained = tokenizer.train(text.strings(), family=_FAMILIES[name], vocab_size=32_000, **how)
    trained.save(folder, format="sentencepiece" if in_model else "huggingface")
    assert not in_model or (folder / MODEL).is_file()


def _measure(
    name: str, vocabulary: str, chosen: set[str], options: argparse.Namespace, folder: Path
) -> Sequence[Outcome]:
    text, path = texts.load(name, int(options.megabytes * 1e6)), folder / "text"
    text.write(path)
    progress(vocabulary, name)
    case = Case(vocabulary, Path(name).name, len(text.data), len(text), 1)
    made_with = {"vocabulary": vocabulary, "files": str(folder / vocabulary), "num_threads": 1}
    reference = FAMILY_VOCABULARIES[vocabulary]
    sides = [side for side in FAMILY_ENCODERS if side in chosen]
    job = Job(case, "family_encoders", path, made_with, _PHASES)
    limits = Limits(options.repeat, options.patience, options.timeout)
    return together(job, sides, SameDocuments(reference, "ids"), limits)
