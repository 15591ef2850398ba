"""Runs the encoder of the audit's page in Node.js."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from importlib import resources

import pytest

from tokmill.tasks.audit.report.encoding import encoder_of
from tokmill.tokenizer import Tokenizer

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node, which runs the page's encoder, on the PATH")

_PROGRAM = """
const {makeEncoder, CannotEncode} = require(process.argv[1]);
const {spec, texts, options} = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const encode = makeEncoder(spec);
console.log(JSON.stringify(texts.map((text) => {
  try { return encode(text, options); } catch (error) {
    if (error instanceof CannotEncode) return error.message;
    throw error;
  }
})));
"""


def ids_in_page(tok: Tokenizer, texts: Sequence[str], *, special: bool = False) -> list[list[int] | str]:
    """Return what the page's encoder makes of texts: ids, or why there are none."""
    script = resources.files("tokmill.tasks.audit.report").joinpath("static", "encoder.js")
    given = json.dumps({"spec": encoder_of(tok), "texts": texts, "options": {"special": special}})
    with resources.as_file(script) as path:
        done = subprocess.run(
            [str(NODE), "-e", _PROGRAM, str(path)], input=given.encode(), capture_output=True, check=False
        )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)
