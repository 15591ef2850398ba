"""Names with which a bundle, a bucket, a record or a run file tries to reach what lies elsewhere."""

HOSTILE = {
    "absolute": "/tmp/tokmill-victim",
    "above": "..",
    "above, below": "../../../../victim",
    "above, inside": "a/../../../victim",
    "here": ".",
    "a part that is a dot": "a/./b",
    "empty": "",
    "an empty part": "a//b",
    "a folder": "a/",
    "NUL": "a\0.txt",
    "a backslash": "..\\..\\victim",
    "a drive": "C:/victim",
    "a drive, inside": "a/c:victim",
    "a long part": "a" * 256,
    "a long part in bytes": "é" * 128,
    "a long whole": "/".join(["a" * 200] * 12),
}
