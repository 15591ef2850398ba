"""BPE trainers side by side: text to merges, by tokmill and by its peers, on the same text in the same run.

    python benchmarks/train.py                                     everything, about fifteen minutes
    python benchmarks/train.py --text english+code --peer gigatoken --repeat 5
    python benchmarks/train.py --megabytes 10 --vocab-size 8000 --threads 1
    python benchmarks/train.py --text japanese --text chinese --out results
    python benchmarks/train.py book.txt more.jsonl.zst

GPT-2's split pattern, except for sentencepiece, which cuts text its own way, and gigabpe, which reads files
by lines. Every training has a process of its own. The merges of the sides that break ties alike (tokmill with
`tie_break="lowest_ids"`, tokenizers, gigatoken) are compared one by one before a time counts; of the others
the table says what was compared.
"""

import sys

from side_by_side.arguments import check_texts, parser, threads
from side_by_side.environment import enter
from side_by_side.names import OURS, PROSE, TRAINERS, TRAINING_TEXTS


def main() -> None:
    """Measure, and print tables; the exit status is 1 if tokmill's merges are wrong anywhere."""
    texts = [*TRAINING_TEXTS, *PROSE]
    made = parser(__doc__, texts=texts, sides=[side for side in TRAINERS if side not in OURS])
    made.add_argument("--vocab-size", type=int, default=32_000, metavar="N", help="bytes and merges; 32000")
    made.add_argument("--threads", type=threads, default=[2], metavar="1,2", help="two by default")
    made.set_defaults(megabytes=1000.0, patience=20.0, timeout=900.0)
    options = made.parse_args()
    check_texts(made, options, texts)
    enter(__file__, here=options.here)

    from side_by_side import training

    sys.exit(training.run(options))


if __name__ == "__main__":
    main()
