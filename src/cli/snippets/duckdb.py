#: any
# pip install duckdb duckdb-extension-delta (without the second, DuckDB fetches its extension once)
import importlib.util
import pathlib

import duckdb

TABLE = @TABLE@

db = duckdb.connect()
packed = importlib.util.find_spec("duckdb_extension_delta")
if packed:
    home = pathlib.Path(packed.origin).parent / "extensions" / f"v{duckdb.__version__}"
    db.execute(f"LOAD '{home / 'delta.duckdb_extension'}'")
else:
    db.execute("INSTALL delta")
    db.execute("LOAD delta")
#: store
# An object store needs DuckDB's httpfs or azure, and a secret: CREATE SECRET (TYPE s3, PROVIDER credential_chain)
#: any
db.execute("SET VARIABLE place = $place", {"place": TABLE})
#: placeholder

# The table of layout `changelog`, whose key is `id`. In layout `current` the table is the state: take
# state = db.sql("SELECT * FROM delta_scan(getvariable('place'))")
#: keyed

# The current state: the latest step of each key in the current generation, without what is deleted.
state = db.sql("""
    WITH changelog AS (
        SELECT * FROM delta_scan(getvariable('place')) QUALIFY __generation = max(__generation) OVER ()),
    latest AS (SELECT * FROM changelog QUALIFY __step = max(__step) OVER (PARTITION BY @KEY_SQL@))
    SELECT * EXCLUDE (__generation, __step, __op) FROM latest WHERE __op <> 'd'
""")
#: keyless

# The current state: each row as often as it was inserted and not deleted, which `copies` counts.
state = db.sql("""
    WITH changelog AS (
        SELECT * FROM delta_scan(getvariable('place')) QUALIFY __generation = max(__generation) OVER ())
    SELECT * EXCLUDE (__generation, __step, __op), sum(CASE __op WHEN 'i' THEN 1 ELSE -1 END)::BIGINT AS copies
    FROM changelog GROUP BY ALL HAVING copies > 0
""")
#: current

# The current state: the table is the view.
state = db.sql("SELECT * FROM delta_scan(getvariable('place'))")
#: any
print(state)

# What our commits say of themselves, oldest first; what lies below a rebuilt log does not count.
db.execute(r"""
    CREATE TEMP TABLE stamps AS
    WITH entries AS (
        SELECT regexp_extract(filename, '([0-9]+)\.json$', 1)::BIGINT AS version, commitInfo->>'userMetadata' AS said
        FROM read_json(getvariable('place') || '/_delta_log/*.json', format = 'newline_delimited', filename = true,
                       columns = {commitInfo: 'JSON'})
        WHERE commitInfo IS NOT NULL),
    ours AS (SELECT version, said::JSON AS stamp FROM entries WHERE starts_with(said, '{"cutover":1,'))
    SELECT version, stamp->>'kind' AS kind, (stamp->>'generation')::BIGINT AS generation,
           (stamp->>'from')::UBIGINT AS "from", (stamp->>'to')::UBIGINT AS "to"
    FROM ours
    WHERE version >= (SELECT coalesce(max(version) FILTER (starts_with(stamp->>'commit', 'rebuild:')), 0) FROM ours)
""")

# The cutover: generation, step and version of the newest reload; none where the log was cleaned up beyond it.
cutover = db.sql("""
    SELECT generation, "to" AS step, version FROM stamps WHERE kind = 'reload' ORDER BY version DESC LIMIT 1
""").fetchone()
print("cutover:", cutover)

# Continuity: commits that do not start at the step at which the one before ended.
broken = db.sql("""
    SELECT version, "from", lag("to") OVER (ORDER BY version) AS expected FROM stamps
    QUALIFY kind <> 'reload'
        AND ("from" <> expected OR generation <> lag(generation) OVER (ORDER BY version))
    ORDER BY version
""").fetchall()
print("continuous" if not broken else f"not continuous: {broken}")
