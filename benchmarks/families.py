"""Encoders of WordPiece, Unigram and SentencePiece's models side by side; `encode.py` has byte-level BPE.

    python benchmarks/families.py                                  everything, about fifteen minutes
    python benchmarks/families.py --vocab bert --text english --text code --repeat 9
    python benchmarks/families.py --vocab sentencepiece-bpe --peer sentencepiece --megabytes 1 book.txt
    python benchmarks/families.py --out results                    also tables, figures and plots as files

bert                  BERT's vocabulary, its normalizer and its pre-tokenizer, in a tokenizer.json
unigram               32,000 pieces that tokmill trains, GPT-2's split, in a tokenizer.json
sentencepiece         Unigram, 32,000 pieces that tokmill trains on whole sentences, in a .model
sentencepiece-bpe     the same with BPE

Every document's ids are compared with those of tokenizers (of sentencepiece for a .model) before a time
counts. Special tokens are not put around a text. CPU time is that of all threads; there is one.
"""

import sys

from side_by_side.arguments import check_texts, parser
from side_by_side.environment import enter
from side_by_side.names import FAMILY_ENCODERS, FAMILY_VOCABULARIES, OURS, PROSE


def main() -> None:
    """Measure, and print tables; the exit status is 1 if tokmill's ids are wrong anywhere."""
    made = parser(__doc__, texts=PROSE, sides=[side for side in FAMILY_ENCODERS if side not in OURS])
    made.add_argument("--vocab", action="append", choices=FAMILY_VOCABULARIES, help="all by default")
    made.set_defaults(megabytes=2.0, patience=20.0, timeout=120.0)
    options = made.parse_args()
    check_texts(made, options, PROSE)
    enter(__file__, here=options.here)

    from side_by_side import families

    sys.exit(families.run(options))


if __name__ == "__main__":
    main()
