"""Encoders side by side: text to token ids, by tokmill and by its peers, on the same text in the same run.

    python benchmarks/encode.py                                    everything, about twelve minutes
    python benchmarks/encode.py --vocab cl100k --text english --text code --repeat 9
    python benchmarks/encode.py --peer gigatoken --megabytes 32 book.txt more.jsonl.zst
    python benchmarks/encode.py --part prose --threads 1,2         one thread against two
    python benchmarks/encode.py --vocab trained --text japanese    a vocabulary that is trained first
    python benchmarks/encode.py --part single                      a call for one short text
    python benchmarks/encode.py --part start                       import to first token
    python benchmarks/encode.py --out results                      also tables, figures and plots as files

cold   an encoder that was just loaded and has never seen the text
warm   the same encoder on the same text again

Every document's ids are compared with tiktoken's before a time counts. CPU time is that of all threads.
"""

import sys

from side_by_side.arguments import check_texts, parser, threads
from side_by_side.environment import enter
from side_by_side.names import ENCODERS, HARD, OURS, PROSE, TRAINED, VOCABULARIES


def main() -> None:
    """Measure, and print tables; the exit status is 1 if tokmill's ids are wrong anywhere."""
    texts = [*PROSE, *HARD]
    made = parser(__doc__, texts=texts, sides=[side for side in ENCODERS if side not in OURS])
    made.add_argument(
        "--vocab", action="append", choices=[*VOCABULARIES, TRAINED], help="the published by default"
    )
    made.add_argument("--threads", type=threads, default=[1], metavar="1,2", help="one by default")
    made.add_argument(
        "--part",
        action="append",
        choices=("prose", "hard", "single", "start"),
        help="prose, hard input, single short texts, import to first token; all by default",
    )
    made.set_defaults(megabytes=8.0, patience=8.0, timeout=120.0)
    options = made.parse_args()
    check_texts(made, options, texts)
    enter(__file__, here=options.here)

    from side_by_side import encoding

    sys.exit(encoding.run(options))


if __name__ == "__main__":
    main()
