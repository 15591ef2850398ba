"""The SQL of `tasks.takedown.impact`: corpora by their files, and what was made from contents.

The parameters `numbers` are those of contents (`tasks.store.tables`); kinds and digests decide.
"""

from typing import Final

from tokmill.tasks.store.tables import ALL_ARTIFACTS, ALL_INPUTS, OWNERS, near_by_number

BY_PLACE: Final = """
    SELECT a.fingerprint, a.name, a.content_digest, i.digest, i.origin
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.role = 'files' AND starts_with(i.origin, $start) AND a.stage = 'ingest'
    ORDER BY a.name, a.fingerprint, i.digest
"""
BY_CONTENT: Final = """
    SELECT a.fingerprint, a.name, a.content_digest FROM artifacts a
    WHERE a.stage = 'ingest' AND fingerprint IN (
        SELECT i.fingerprint FROM inputs i
        WHERE i.role = 'files' AND i.file_digest = $digest
    )
    ORDER BY a.name, a.fingerprint
"""
DOWN: Final = f"""
    WITH RECURSIVE {near_by_number("SELECT unnest($numbers::UBIGINT[])")},
    down(kind, digest, has_text) AS (
        SELECT unnest($kinds::VARCHAR[]), unnest($digests::VARCHAR[]), unnest($holds::BOOLEAN[])
        UNION
        SELECT e.kind, e.content_digest,
               d.has_text AND e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
        FROM down d JOIN edges e ON e.input_kind = d.kind AND e.digest = d.digest
    ),
    found AS (SELECT * FROM artifacts WHERE content_id IN (FROM near)),
    made AS MATERIALIZED (
        SELECT a.kind, a.name, a.label, a.fingerprint, a.content_digest, bool_or(d.has_text) AS has_text
        FROM down d JOIN found a ON a.kind = d.kind AND a.content_digest = d.digest
        GROUP BY ALL
    ),
    up(packed, kind, digest) AS (
        SELECT content_digest, kind, content_digest FROM made WHERE kind = 'packed' AND has_text
        UNION
        SELECT u.packed, e.input_kind, e.digest
        FROM up u JOIN edges e ON e.kind = u.kind AND e.content_digest = u.digest
        WHERE e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed')
    ),
    own AS (
        SELECT u.packed, list(DISTINCT e.digest) AS texts
        FROM up u JOIN edges e ON e.kind = u.kind AND e.content_digest = u.digest
        WHERE e.role = 'shard' AND e.input_kind IS NULL AND e.digest IN (SELECT unnest($shards::VARCHAR[]))
        GROUP BY u.packed
    )
    SELECT m.*, own.texts FROM made m LEFT JOIN own ON m.kind = 'packed' AND own.packed = m.content_digest
    ORDER BY m.kind, m.name, m.label, m.fingerprint
"""  # noqa: S608 - constants
OF_SHARDS: Final = f"""
    WITH every AS NOT MATERIALIZED ({ALL_INPUTS})
    SELECT DISTINCT i.input_kind AS text_kind, i.digest AS text,
           o.kind, o.name, o.fingerprint, o.content_digest
    FROM every i JOIN ({OWNERS}) o USING (fingerprint, status)
    WHERE i.input_content_id IN (SELECT unnest($numbers::UBIGINT[]))
"""  # noqa: S608 - constants
PARTS: Final = f"""
    SELECT DISTINCT i.input_kind AS whole_kind, i.digest AS whole,
           a.kind, a.name, a.fingerprint, a.content_digest
    FROM artifacts a JOIN ({ALL_INPUTS}) i USING (fingerprint)
    WHERE a.kind = 'corpus' AND i.role = 'corpus'
      AND i.input_content_id IN (SELECT unnest($numbers::UBIGINT[]))
    ORDER BY a.name, a.fingerprint
"""  # noqa: S608 - constants
LOST: Final = f"""
    WITH RECURSIVE lost AS MATERIALIZED (
        SELECT DISTINCT i.input_content_id AS content, i.input_kind AS kind, i.digest,
               i.input_kind || '/' || i.input_name AS name
        FROM inputs i ANTI JOIN ({ALL_ARTIFACTS}) a ON a.kind = i.input_kind AND a.content_digest = i.digest
        WHERE i.input_kind IN ('encoded_shard', 'encoded', 'mixture', 'pack_plan', 'packed_shard', 'packed')
    ),
    {near_by_number("SELECT content FROM lost")},
    down(kind, digest, name) AS (
        SELECT kind, digest, name FROM lost
        UNION
        SELECT e.kind, e.content_digest, d.name
        FROM down d JOIN edges e ON e.input_kind = d.kind AND e.digest = d.digest
        WHERE e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
    ),
    found AS (SELECT * FROM artifacts WHERE content_id IN (FROM near))
    SELECT a.fingerprint, min(d.name) AS name
    FROM down d JOIN found a ON a.kind = d.kind AND a.content_digest = d.digest
    GROUP BY a.fingerprint
"""  # noqa: S608 - constants
