"""The scanners alone: text to pre-tokens, by our automaton and by the `regex` package, in the same run.

    python benchmarks/split.py                                     the corpora and NTREX, four patterns
    python benchmarks/split.py --pattern o200k README.md
    python benchmarks/split.py --text code --repeat 9 --megabytes 32 --out results

Each side gets the text as it likes it: ours takes UTF-8 and offsets and gives int64 starts and ends; `regex`
takes `str` and gives a list of `str`, document by document. The cuts of every document are compared before a
time counts. Compiling kernels and patterns is not in the figures.
"""

import sys

from side_by_side.arguments import check_texts, parser
from side_by_side.environment import enter
from side_by_side.names import PATTERNS, PROSE, SPLITTERS


def main() -> None:
    """Measure, and print tables; the exit status is 1 if the automaton's cuts are wrong anywhere."""
    made = parser(__doc__, texts=PROSE, sides=SPLITTERS[1:])
    made.add_argument("--pattern", action="append", metavar="NAME", help=f"{', '.join(PATTERNS)} by default")
    made.set_defaults(megabytes=8.0, patience=10.0, timeout=300.0)
    options = made.parse_args()
    check_texts(made, options, PROSE)
    enter(__file__, here=options.here)

    from side_by_side import splitting

    sys.exit(splitting.run(options))


if __name__ == "__main__":
    main()
