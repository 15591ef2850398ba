"""From text to packed shards, beside peers: each side does the whole of its work, in turns, in one run.

    python benchmarks/end_to_end.py ../shared/data/corpora/{english_docs,code}.jsonl.zst
    python benchmarks/end_to_end.py … --megabytes 68 640 --repeat 5 --gpt2 gpt2/vocab.json

The text is JSON lines in eight files; documents that hold GPT-2's special token are left out, since libraries
differ in what they make of it. tokmill adopts GPT-2 and packs (no audit, no cards), or trains 32,000 tokens
and makes all that a run makes; each without Prefect and with it, its server's CPU time added. datatrove
tokenizes alone, with GPT-2 and as many workers, in an environment of its own. Tokens of GPT-2 must be as many
on each side, and artifacts with Prefect those without, before a figure counts. Megatron's `preprocess_data`
is in no package; `--megatron` takes a checkout, with a Python that can run it.

Kernels are compiled beforehand. CPU time is that of all processes; MB are 10^6 bytes of text, by the wall.
How it is measured is in `whole_runs.py`.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from side_by_side.environment import environment_of
from side_by_side.texts import SHARED
from whole_runs import PROFILE, idle_share, run, server, timed, write_text

_SPECIAL = "<|endoftext|>"
_DATATROVE = "datatrove[io,processing]==0.10.1 tokenizers"
_PEER = "datatrove 0.10.1, GPT-2"
_ADOPTED = """
name = "adopted"
[sources.large]
files = ["text/*.jsonl"]
[tokenizer]
use = "gpt2/tokmill.json"
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 2048
formats = ["memmap"]
"""
_TOKENIZE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
if __name__ == "__main__":
    folder, workers = sys.argv[1], int(sys.argv[2])
    steps = [
        JsonlReader(folder + "/text"),
        DocumentTokenizer(folder + "/peer", tokenizer_name_or_path=folder + "/gpt2/tokenizer.json",
                          eos_token="<|endoftext|>", shuffle_documents=False),
    ]
    LocalPipelineExecutor(steps, tasks=workers, workers=workers, logging_dir=folder + "/peer-logs").run()
"""
Side = Callable[[], tuple[float, float]]


def main() -> None:
    """Measure and print a table for each size."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        folder = Path(name)
        _prepare(folder, asked.gpt2)
        with server(folder / "prefect") as environment:
            warm = _Sides(folder, environment, 1, asked.megatron)
            write_text(asked.files, folder / "text", 1_000_000, 125_000, _SPECIAL)
            for side in warm.all(("--set", "train.vocab_size=2000")).values():
                side()
            shutil.rmtree(folder / "text")
            idle = idle_share(environment)
            for megabytes in asked.megabytes:
                num_bytes = int(megabytes * 1e6)
                written = write_text(asked.files, folder / "text", num_bytes, num_bytes // 8, _SPECIAL)
                sides = _Sides(folder, environment, asked.workers, asked.megatron, idle)
                spent = _turns(sides.all(), asked.repeat)
                shutil.rmtree(folder / "text")
                _show(spent, written / 1e6, sides, asked.workers)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files, compressed or not")
    parser.add_argument("--megabytes", nargs="+", type=float, default=[68.0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpt2", type=Path, default=SHARED / "vocabs" / "gpt2_vocab.json")
    parser.add_argument("--megatron", nargs=2, metavar=("CHECKOUT", "PYTHON"))
    parser.add_argument("--work", type=Path, help="where text and stores are; a temporary folder by default")
    return parser.parse_args()


def _prepare(folder: Path, gpt2: Path) -> None:
    """Write the profiles, GPT-2 in the forms that sides like, and the peer's program."""
    from tokmill import tokenizer

    (folder / "whole.toml").write_text(PROFILE.format(ingest="").replace("sample_megabytes = 8\n", ""))
    (folder / "adopted.toml").write_text(_ADOPTED)
    (folder / "peer_program.py").write_text(_TOKENIZE)
    loaded = tokenizer.load(gpt2)
    for form in ("tokmill", "huggingface", "gpt2"):
        loaded.save(folder / "gpt2", format=form)


class _Sides:
    """The sides on one text, each a function that works once and returns wall and CPU time.

    Attributes:
        tokens: what each side with GPT-2 made; all must have made as many.
        left_out: why a peer is left out.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        workers: int,
        megatron: Sequence[str] | None,
        idle: float = 0.0,
    ) -> None:
        self._folder, self._environment, self._workers = folder, environment, workers
        self._megatron, self._idle = megatron, idle
        self._digests: dict[str, Mapping[str, str]] = {}
        self.tokens: dict[str, int] = {}
        self.left_out: dict[str, str] = {}

    def all(self, options: Sequence[str] = ()) -> dict[str, Side]:
        """Return the sides by name; options are for the run that trains."""
        whole, adopted = ("whole.toml", *options), ("adopted.toml", "--until", "packed")
        sides: dict[str, Side] = {
            "tokmill, GPT-2 adopted, no audit; without Prefect": partial(self._run, "no-prefect", *adopted),
            "… with Prefect": partial(self._run, "threads", *adopted),
            "tokmill, 32,000 tokens trained, audit, cards; without Prefect": partial(
                self._run, "no-prefect", *whole
            ),
            "…, the same with Prefect": partial(self._run, "threads", *whole),
        }
        python, failure = environment_of(_DATATROVE)
        if failure:
            self.left_out[_PEER] = failure
        else:
            sides[_PEER] = partial(self._datatrove, python)
        if self._megatron:
            sides["Megatron's preprocess_data, GPT-2"] = self._preprocess
        return sides

    def _run(self, runner: str, profile: str, *options: str) -> tuple[float, float]:
        def look(store: Path) -> None:
            for path in store.glob("encoded/*/record.json") if profile == "adopted.toml" else ():
                self.tokens[f"tokmill, {runner}"] = json.loads(path.read_bytes())["metrics"]["num_tokens"]

        done = run(
            self._folder, self._environment, runner, self._workers, *options, profile=profile, look=look
        )
        if self._digests.setdefault(profile, done[1]) != done[1]:
            raise SystemExit(f"{profile}: {runner} made other artifacts")
        return done[0].wall, done[0].cpu if runner == "no-prefect" else done[0].with_server(self._idle)

    def _datatrove(self, python: Path) -> tuple[float, float]:
        command = [str(python), "peer_program.py", str(self._folder), str(self._workers)]
        spent = timed(command, self._folder, {**os.environ, "TOKENIZERS_PARALLELISM": "false"})
        written = sum(file.stat().st_size for file in (self._folder / "peer").glob("*.ds"))
        self.tokens["datatrove"] = written // 2
        for name in ("peer", "peer-logs"):
            shutil.rmtree(self._folder / name)
        return spent

    def _preprocess(self) -> tuple[float, float]:
        checkout, python = self._megatron or ("", "")
        files, out = self._folder / "text.jsonl", self._folder / "megatron"
        with files.open("wb") as whole:
            for file in sorted((self._folder / "text").iterdir()):
                whole.write(file.read_bytes())
        vocab = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "gpt2", "--append-eod"]
        program = [python, f"{checkout}/tools/preprocess_data.py", "--input", str(files), *vocab]
        how = ["--output-prefix", str(out), "--workers", str(self._workers)]
        spent = timed([*program, *how], self._folder, {**os.environ, "HF_HUB_OFFLINE": "1"})
        self.tokens["Megatron"] = (self._folder / "megatron_text_document.bin").stat().st_size // 2
        for file in (files, *self._folder.glob("megatron_*")):
            file.unlink()
        return spent


def _turns(sides: Mapping[str, Side], repeat: int) -> dict[str, list[tuple[float, float]]]:
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            spent[name].append(side())
            print(f"{name}: {spent[name][-1][0]:.1f} s, CPU {spent[name][-1][1]:.1f} s", file=sys.stderr)
    return spent


def _show(
    spent: Mapping[str, Sequence[tuple[float, float]]], megabytes: float, sides: _Sides, workers: int
) -> None:
    if len({*sides.tokens.values()}) != 1:
        raise SystemExit(f"sides made different numbers of tokens: {sides.tokens}")
    medians = {
        name: tuple(statistics.median(one[k] for one in each) for k in (0, 1)) for name, each in spent.items()
    }
    peer = medians.get(_PEER)
    print(f"{megabytes:.0f} MB, {workers} workers, {next(iter(sides.tokens.values())):,} tokens of GPT-2")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| | wall s | CPU s | MB/s | times as fast as datatrove | CPU |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (wall, cpu) in medians.items():
        ratios = "– | –" if peer is None else f"{peer[0] / wall:.1f}× | {peer[1] / cpu:.1f}×"
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {megabytes / wall:.1f} | {ratios} |")
    for name, reason in sides.left_out.items():
        print(f"\n{name} is left out: {reason}")
    print(flush=True)


if __name__ == "__main__":
    main()
