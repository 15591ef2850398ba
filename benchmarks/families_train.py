"""Trainers of WordPiece, word BPE, Unigram and SentencePiece's BPE side by side; `train.py` has byte BPE.

    python benchmarks/families_train.py                            everything, about half an hour
    python benchmarks/families_train.py --kind wordpiece --text ntrex --vocab-size 8000
    python benchmarks/families_train.py --kind unigram --megabytes 5 --repeat 1 book.txt
    python benchmarks/families_train.py --out results              also tables and figures as files

wordpiece             pairs by frequency, as tokenizers trains, BERT's normalizer and pre-tokenizer
word_bpe              BPE over the characters of words with `</w>`, the same two; beside tokenizers
unigram               whole sentences, beside sentencepiece with its own defaults
sentencepiece-bpe     the same with BPE

Texts are taken line by line, and every tenth line is held out. A time counts only where the pieces compress
the held-out lines as well as the reference's (half a percent at most is lost); how many pieces are common to
both is said. Every training has a process of its own.
"""

import sys

from side_by_side.arguments import check_texts, parser, threads
from side_by_side.environment import enter
from side_by_side.names import FAMILY_TRAININGS, PROSE


def main() -> None:
    """Measure, and print tables; the exit status is 1 if tokmill's pieces are worse anywhere."""
    texts = ["everything", *PROSE]
    made = parser(__doc__, texts=texts, sides=sorted(set(FAMILY_TRAININGS.values())))
    made.add_argument("--kind", action="append", choices=FAMILY_TRAININGS, help="all by default")
    made.add_argument("--vocab-size", type=int, action="append", metavar="N", help="8000 and 32000")
    made.add_argument("--threads", type=threads, default=[2], metavar="1,2", help="two by default")
    made.set_defaults(megabytes=5.0, patience=60.0, timeout=900.0)
    options = made.parse_args()
    check_texts(made, options, texts)
    enter(__file__, here=options.here)

    from side_by_side import family_training

    sys.exit(family_training.run(options))


if __name__ == "__main__":
    main()
