"""Run the commands in a document's console blocks again, and put in what they print.

    python docs/refresh.py docs/cli.md

Every line of a ```console block that begins with `$ ` is run by a shell, in order, in one empty folder that
is thrown away; the lines below it become what it printed, with a line for an exit code that is not 0. A block
that begins with a file's name in a comment (`# own.toml`) is that file in the folder, from there on. What
belongs to the machine (folders, the user's name, a first compilation) is replaced or left out, and so are
blanks at the ends of lines.
"""

import os
import re
import subprocess
import sys
import tempfile
from getpass import getuser
from pathlib import Path

BLOCK = re.compile(r"^```(console|toml|python)\n(.*?)(?=^```)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")


def refreshed(text: str, folder: Path) -> str:
    """Return the document with new output in every block."""

    def new(block: re.Match[str]) -> str:
        named = FILE.match(block[2])
        if block[1] == "console":
            return f"```console\n{''.join(map_commands(block[2], folder))}"
        if named:
            (folder / named[1]).write_text(block[2], encoding="utf-8")
        return block[0]

    return BLOCK.sub(new, text)


def map_commands(block: str, folder: Path) -> list[str]:
    """Return a block's commands, each followed by what it printed now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    shown = [f"$ {command}\n{output(command, folder)}" for command in commands]
    return ["\n".join(shown)]


def output(command: str, folder: Path) -> str:
    """Run one command and return what it printed."""
    sys.stderr.write(f"$ {command}\n")
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    code = f"(exit code {done.returncode})\n" if done.returncode else ""
    return without_machine(f"{done.stdout}{code}", folder)


def without_machine(text: str, folder: Path) -> str:
    """Replace what another machine would print differently."""
    places = {
        f"{folder}/": "",
        str(folder): ".",
        f"{Path(sys.executable).parent}/": "",
        str(Path.home()): "~",
    }
    for place, shown in places.items():
        text = text.replace(place, shown)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *compiling kernels.*\n", "", text, flags=re.MULTILINE)
    return re.sub(rf"\bby( +){re.escape(getuser())}\b", r"by\1you", text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory(prefix="tokmill-docs-") as scratch:
            path.write_text(refreshed(path.read_text(encoding="utf-8"), Path(scratch)), encoding="utf-8")
