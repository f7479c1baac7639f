-- Tables that Cutover writes, judged by DuckDB from their logs: plain SQL, no extension, nothing is written.
--
--     .read readers/duckdb/cutover.sql
--     FROM cutover_assert('lake/orders');      -- one row when the table is healthy, an error with the findings when it is not
--     FROM cutover_cutover('lake/orders');     -- where it stands: generation, cutover, last step, layout, key
--     FROM cutover_commits('lake/orders');     -- every version, foreign and missing ones too
--     FROM cutover_verdict('lake/orders');     -- what cutover_assert holds against, as a row: healthy, broken, inconclusive
--     FROM cutover_findings('lake/orders');    -- each broken rule of PROTOCOL.md, with its version and file
--
-- Once the log was cleaned up, what lies below its first entry stands in a checkpoint. Say so, and the checkpoint is read:
--
--     FROM cutover_assert('lake/orders', expired := true);
--
-- Without that, the verdict on such a table is inconclusive and says what to call; with it, a table without a checkpoint is an
-- error. A table is a path or URI as DuckDB takes it. In an object store each data file is asked for its size.
--
-- Judged are R1 to R7 as PROTOCOL.md has them, by the log, the names and sizes of data files and of deletion vectors. Not seen are,
-- beside what no reader sees without reading rows: what a deletion vector holds, a checkpoint that says other than the entries
-- (unless the verdict rests on it), and table features. A checkpoint with sidecars is not read: inconclusive.

-- The log as rows: every action of the entries, and with `expired` those of the checkpoints (`is_state`). `kind` is null where a
-- line is no action: `body` is the line then, or null where it is no JSON object.
CREATE OR REPLACE MACRO cutover_actions(uri, expired := false) AS TABLE
    WITH entries AS (
        SELECT try_cast(regexp_extract(filename, '([0-9]{20})[.]json$', 1) AS BIGINT) AS version,
               list_filter(string_split(content, chr(10)), lambda line: trim(line) <> '') AS lines
        FROM read_text(rtrim(uri, '/') || '/_delta_log/*.json')
    ), lines AS (
        SELECT version, unnest(CASE WHEN lines = [] THEN [''] ELSE lines END) AS line,
               unnest(range(greatest(len(lines), 1))) AS place
        FROM entries WHERE version IS NOT NULL
    ), actions AS (
        SELECT version, place, CASE WHEN json_valid(line) AND json_type(line) = 'OBJECT' THEN line::JSON END AS action,
               CASE WHEN json_valid(line) AND len(json_keys(line)) = 1 THEN json_keys(line)[1] END AS kind
        FROM lines
    ), states AS (
        SELECT regexp_extract(filename, '([0-9]{20})[.]checkpoint', 1)::BIGINT AS version, action,
               unnest(['add', 'metaData', 'protocol', 'txn', 'sidecar']) AS kind
        FROM query(CASE WHEN expired
            THEN 'SELECT filename, to_json(t) AS action FROM read_parquet('''
                 || replace(rtrim(uri, '/'), '''', '''''')
                 || '/_delta_log/*.checkpoint*.parquet'', filename = true, union_by_name = true) AS t'
            ELSE 'SELECT NULL::VARCHAR AS filename, NULL::JSON AS action WHERE false' END)
    )
    SELECT version, place, false AS is_state, kind, coalesce(json_extract(action, '$.' || kind), action) AS body FROM actions
    UNION ALL
    SELECT version, 0, true, kind, json_extract(action, '$.' || kind) FROM states
    WHERE json_type(action, '$.' || kind) = 'OBJECT';

-- What each version is: `kind` is that of a commit of Cutover, `foreign`, or `missing` between the oldest and the newest entry.
CREATE OR REPLACE MACRO cutover_commits(uri) AS TABLE
    WITH infos AS (
        SELECT version, any_value(body) FILTER (kind = 'commitInfo') AS info,
               count(*) FILTER (kind = 'add') AS adds, count(*) FILTER (kind = 'remove') AS removes
        FROM cutover_actions(uri) GROUP BY version
    ), told AS (
        SELECT *, try_cast(info->>'userMetadata' AS JSON) AS said FROM infos
    ), stamps AS (
        SELECT * EXCLUDE (said), CASE WHEN json_type(said, '$.cutover') IS NOT NULL THEN said END AS stamp FROM told
    ), versions AS (
        SELECT unnest(range(min(version), max(version) + 1)) AS version FROM stamps
    )
    SELECT v.version,
           CASE WHEN s.version IS NULL THEN 'missing' WHEN stamp IS NULL THEN 'foreign' ELSE stamp->>'kind' END AS kind,
           try_cast(stamp->>'cutover' AS BIGINT) AS contract,
           stamp->>'connector' AS connector,
           try_cast(stamp->>'generation' AS BIGINT) AS generation,
           try_cast(stamp->>'epoch' AS BIGINT) AS epoch,
           try_cast(stamp->>'from' AS BIGINT) AS "from",
           try_cast(stamp->>'to' AS BIGINT) AS "to",
           try_cast(stamp->'rows' AS STRUCT(i BIGINT, u BIGINT, d BIGINT)) AS rows,
           try_cast(stamp->'rows_total' AS STRUCT(i BIGINT, u BIGINT, d BIGINT)) AS rows_total,
           stamp->>'digest' AS digest,
           stamp->>'digest_total' AS digest_total,
           stamp->>'writer' AS writer,
           stamp->>'commit' AS commit,
           stamp->'$.adopt.from'->>'$' AS adopted_from,
           s.adds, s.removes,
           make_timestamp(try_cast(info->>'timestamp' AS BIGINT) * 1000) AS told_at,
           info->>'operation' AS operation,
           info->>'engineInfo' AS engine,
           info
    FROM versions AS v LEFT JOIN stamps AS s USING (version) ORDER BY v.version;

-- Where a table stands, in one row. `cutover` and what else the properties say is null where the log was cleaned up and
-- `expired` is not said.
CREATE OR REPLACE MACRO cutover_cutover(uri, expired := false) AS TABLE
    WITH actions AS (FROM cutover_actions(uri, expired := expired)),
    commits AS (FROM cutover_commits(uri)),
    properties AS (
        SELECT arg_max(body->'configuration', version) AS said FROM actions WHERE kind = 'metaData'
    ), said AS (
        SELECT try_cast(said->>'cutover.contract' AS BIGINT) AS contract,
               said->>'cutover.connector' AS connector,
               try_cast(said->>'cutover.generation' AS BIGINT) AS generation,
               try_cast(said->>'cutover.step' AS BIGINT) AS cutover,
               said->>'cutover.mode' AS mode, said->>'cutover.layout' AS layout,
               try_cast(said->>'cutover.key' AS VARCHAR[]) AS key,
               said->>'cutover.commit' AS reload
        FROM properties
    )
    SELECT s.contract, s.connector, s.generation, s.cutover,
           (SELECT max(version) FROM commits WHERE kind = 'reload' AND commit = s.reload) AS cutover_version,
           (SELECT arg_max((body->>'version')::BIGINT, version) FROM actions
            WHERE kind = 'txn' AND (body->>'appId') = 'cutover/step') AS last_step,
           (SELECT arg_max((body->>'version')::BIGINT, version) FROM actions
            WHERE kind = 'txn' AND (body->>'appId') = 'cutover/epoch') AS epoch,
           s.mode, s.layout, s.key,
           (SELECT min(version) FROM commits) AS since_version,
           (SELECT max(version) FROM commits) AS version
    FROM said AS s;

-- Every broken rule. `severity`: `broken` counts; `older` was healed by a later reload; `unclear` is what cannot be told.
CREATE OR REPLACE MACRO cutover_findings(uri, expired := false) AS TABLE
    WITH actions AS MATERIALIZED (FROM cutover_actions(uri, expired := expired)),
    every_commit AS MATERIALIZED (FROM cutover_commits(uri)),
    checkpoints AS (
        SELECT DISTINCT try_cast(regexp_extract(file, '([0-9]{20})[.]checkpoint[.]', 1) AS BIGINT) AS version
        FROM glob(rtrim(uri, '/') || '/_delta_log/*.checkpoint.*')
    ),
    -- Where the checks begin: at a rebuild, else above the newest hole.
    rebuilds AS (
        SELECT coalesce(max(version) FILTER (kind = 'reload' AND starts_with(commit, 'rebuild:')), -1) AS rebuild FROM every_commit
    ), beginning AS (
        SELECT rebuild, coalesce(newest, -1) AS checkpoint,
               greatest(rebuild, coalesce(max(version) FILTER (kind = 'missing' AND version > rebuild) + 1, min(version))) AS first,
               max(version) AS last
        FROM every_commit, rebuilds, (SELECT max(c.version) AS newest FROM checkpoints AS c) GROUP BY rebuild, newest
    ), scope AS MATERIALIZED (
        SELECT *, CASE WHEN first IN (0, rebuild) THEN first ELSE base + 1 END AS known_from
        FROM (SELECT *, CASE WHEN first NOT IN (0, rebuild) THEN
                  (SELECT min(version) FROM actions WHERE is_state AND version >= first - 1) END AS base FROM beginning)
    ),
    commits AS (SELECT c.* FROM every_commit AS c, scope WHERE version >= first),
    ours AS MATERIALIZED (
        SELECT *, lag("to") OVER w AS before_to, lag(generation) OVER w AS before_generation, lag(epoch) OVER w AS before_epoch,
               lag(digest_total) OVER w AS before_total, lag(rows_total) OVER w AS before_rows, lag(connector) OVER w AS before_connector
        FROM commits
        WHERE contract = 1 AND kind IN ('reload', 'append', 'mark', 'maintenance') AND generation IS NOT NULL AND epoch IS NOT NULL
          AND "to" IS NOT NULL AND rows IS NOT NULL AND digest IS NOT NULL AND commit IS NOT NULL AND writer IS NOT NULL
          AND connector IS NOT NULL AND (kind = 'reload' OR "from" IS NOT NULL)
        WINDOW w AS (ORDER BY version)
    ),
    newest AS (SELECT max(version) FILTER (kind = 'reload') AS reload, max(version) AS version, arg_max("to", version) AS step,
                      arg_max(generation, version) AS generation, arg_max(epoch, version) AS epoch, arg_max(rows_total, version) AS rows_total FROM ours),
    -- The metadata that hold at each version.
    told AS (
        SELECT a.version, a.is_state, body, body->'configuration' AS said, body->'partitionColumns' AS partitioning,
               from_json(body->>'schemaString', '{"fields": [{"name": "VARCHAR", "type": "JSON", "nullable": "BOOLEAN"}]}').fields AS fields
        FROM actions AS a, scope WHERE kind = 'metaData' AND (version >= first AND NOT is_state OR version = base AND is_state)
    ), metadata AS MATERIALIZED (
        SELECT *, said->>'cutover.layout' AS layout, lag(body) OVER w AS before_body, lag(said) OVER w AS before_said,
               lag(fields) OVER w AS before_fields, lag(partitioning) OVER w AS before_partitioning,
               map_from_entries(list_filter(coalesce(map_entries(try_cast(said AS MAP(VARCHAR, VARCHAR))), []),
                                            lambda e: starts_with(e.key, 'cutover.'))) AS properties
        FROM told WINDOW w AS (ORDER BY version, is_state)
    ), judged AS (SELECT *, lag(properties) OVER (ORDER BY version, is_state) AS before_properties FROM metadata),
    -- What happens to each file, a file being its path and its deletion vector.
    happened AS (
        SELECT version, is_state, a.kind, body->>'path' AS path,
               concat_ws(' ', body->>'$.deletionVector.storageType', body->>'$.deletionVector.pathOrInlineDv',
                         body->>'$.deletionVector.offset') AS vector,
               try_cast(try_cast(body->>'stats' AS JSON)->>'numRecords' AS BIGINT) AS records,
               coalesce(try_cast(body->>'$.deletionVector.cardinality' AS BIGINT), 0) AS deleted,
               coalesce(try_cast(body->>'dataChange' AS BOOLEAN), true) AS changes,
               try_cast(body->>'size' AS BIGINT) AS size, body->'deletionVector' AS descriptor,
               len(json_keys(body, '$.partitionValues')) AS partition_values,
               version * 4 + CASE WHEN is_state THEN 3 ELSE (a.kind = 'add')::BIGINT END AS turn
        FROM actions AS a, scope
        WHERE a.kind IN ('add', 'remove') AND (version >= first AND NOT is_state OR version = base AND is_state)
    ), files AS MATERIALIZED (
        SELECT *, lag(kind) OVER by_file AS before_kind,
               last_value(CASE WHEN kind = 'add' THEN records END IGNORE NULLS)
                   OVER (by_file ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_records,
               bool_or(kind = 'remove' AND NOT is_state) OVER (PARTITION BY version, path) AS is_replaced,
               max(deleted) FILTER (kind = 'remove') OVER (PARTITION BY version, path) AS deleted_before,
               max(turn) OVER (PARTITION BY path, vector) = turn AND kind = 'add' AS is_live
        FROM happened WINDOW by_file AS (PARTITION BY path, vector ORDER BY turn)
    ), sums AS MATERIALIZED (
        SELECT version, count(*) FILTER (kind = 'add') AS adds, count(*) FILTER (kind = 'remove') AS removes,
               coalesce(sum(records - deleted) FILTER (kind = 'add'), 0) AS rows_added,
               count(*) FILTER (kind = 'add' AND records IS NULL) AS uncounted,
               count(*) FILTER (kind = 'add' AND NOT is_replaced) AS new_files,
               coalesce(sum(size) FILTER (kind = 'add' AND NOT is_replaced), 0) AS new_bytes,
               coalesce(sum(records) FILTER (kind = 'add' AND NOT is_replaced), 0) AS new_rows,
               coalesce(sum(records - deleted) FILTER (kind = 'add' AND is_replaced), 0) AS rows_again,
               coalesce(sum(before_records - deleted) FILTER (kind = 'remove' OR before_kind = 'add'), 0) AS rows_gone,
               count(*) FILTER (kind = 'remove' AND before_records IS NULL) AS gone_uncounted,
               count(*) FILTER (kind = 'remove' AND before_kind IS DISTINCT FROM 'add') AS strays,
               min(path) FILTER (kind = 'remove') AS removed, coalesce(bool_or(changes), false) AS changes,
               coalesce(bool_and(changes), true) AS all_change
        FROM files WHERE NOT is_state GROUP BY version
    ),
    detail AS MATERIALIZED (
        SELECT c.*, coalesce(m.layout, CASE WHEN c.removes > 0 AND c.kind = 'append' THEN 'current' ELSE 'changelog' END) AS layout, m.said,
               coalesce(s.new_files, 0) AS new_files, coalesce(s.new_bytes, 0) AS new_bytes, coalesce(s.new_rows, 0) AS new_rows,
               coalesce(s.rows_again, 0) AS rows_again, coalesce(s.rows_added, 0) AS rows_added, coalesce(s.rows_gone, 0) AS rows_gone,
               coalesce(s.uncounted, 0) AS uncounted, coalesce(s.gone_uncounted, 0) AS gone_uncounted, coalesce(s.strays, 0) AS strays,
               s.removed, coalesce(s.changes, false) AS changes, coalesce(s.all_change, true) AS all_change,
               c.version >= known_from AS is_known, rows.i + rows.u + rows.d AS counted, info->'operationMetrics' AS metrics
        FROM ours AS c LEFT JOIN sums AS s USING (version) ASOF LEFT JOIN metadata AS m ON c.version >= m.version, scope
    ), strangers AS MATERIALIZED (
        SELECT c.version, s.* EXCLUDE (version), c.version >= known_from AS is_known
        FROM commits AS c LEFT JOIN sums AS s ON s.version = c.version, scope
        WHERE c.kind = 'foreign' AND (c.version > (SELECT min(version) FROM ours) OR first NOT IN (0, rebuild))
    ), txns AS (
        SELECT version, is_state, body->>'appId' AS app, try_cast(body->>'version' AS BIGINT) AS number, body->>'lastUpdated' AS dated
        FROM actions, scope
        WHERE kind = 'txn' AND starts_with(body->>'appId', 'cutover/') AND (version >= first AND NOT is_state OR version = base AND is_state)
    ), sizes AS (
        SELECT filename[len(rtrim(uri, '/')) + 2:] AS path, size FROM read_blob(rtrim(uri, '/') || '/**')
        WHERE ends_with(filename, '.parquet') OR ends_with(filename, '.bin')
    ),
    found AS (
        -- The log itself.
        SELECT version, 'R6' AS rule, NULL AS file, 'the log entry is missing' AS message, true AS lasts
        FROM every_commit, scope WHERE kind = 'missing' AND version > greatest(checkpoint, rebuild)
        UNION ALL SELECT first - 1, 'R6', NULL, 'the log entry is missing, and no checkpoint above it', true
        FROM scope WHERE first NOT IN (0, rebuild) AND checkpoint < first - 1
                     AND first - 1 NOT IN (SELECT version FROM every_commit WHERE kind = 'missing')
        UNION ALL SELECT version, 'R6', NULL, format('line {} of the log entry is no action', place + 1), true
        FROM actions, scope WHERE kind IS NULL AND body IS NULL AND version >= first
        UNION ALL SELECT version, 'R6', NULL, format('line {} of the log entry has several actions', place + 1), false
        FROM actions, scope WHERE kind IS NULL AND len(json_keys(body)) > 1 AND version >= first
        UNION ALL SELECT version, 'R6', NULL, format('an action {} of the log entry lacks what no engine does without', kind), false
        FROM actions, scope WHERE NOT is_state AND version >= first AND CASE kind
            WHEN 'metaData' THEN coalesce(body->>'id', '') = '' OR coalesce(body->>'schemaString', '') = ''
            WHEN 'protocol' THEN coalesce(body->>'minReaderVersion', '0') = '0' OR coalesce(body->>'minWriterVersion', '0') = '0'
            WHEN 'txn' THEN (body->>'appId') IS NULL ELSE kind IN ('add', 'remove') AND (body->>'path') IS NULL END
        UNION ALL SELECT last, 'R6', '_last_checkpoint', format('it is no JSON, or the checkpoint of version {} is not there', coalesce(named, 'nothing')), true
        FROM scope, (SELECT CASE WHEN json_valid(content) THEN content->>'version' END AS named
                     FROM read_text(rtrim(uri, '/') || '/_delta_log/_last_checkpoint'))
        WHERE NOT EXISTS (FROM checkpoints AS c WHERE c.version::VARCHAR = named)
        UNION ALL SELECT version, 'R2', NULL, 'the commit info cannot be trusted: it has another contract, or lacks a member', false
        FROM commits WHERE kind NOT IN ('foreign', 'missing') AND version NOT IN (SELECT version FROM ours)
        -- R1: generations.
        UNION ALL SELECT version, 'R1', NULL, format('the generation {} begins without a reload', generation), false
        FROM ours WHERE kind <> 'reload' AND generation > before_generation
        UNION ALL SELECT r.version, 'R1', f.path, 'the reload leaves the file live', false
        FROM ours AS r, scope, (SELECT version, path, vector, kind, lead(version) OVER (PARTITION BY path, vector ORDER BY turn) AS until FROM files) AS f
        WHERE r.kind = 'reload' AND r.version >= known_from AND f.kind = 'add' AND f.version < r.version AND coalesce(f.until, r.version + 1) > r.version
        UNION ALL SELECT version, 'R1', removed, 'the reload removes a file that was not live', false
        FROM detail WHERE kind = 'reload' AND is_known AND strays > 0 AND NOT starts_with(commit, 'rebuild:')
        UNION ALL SELECT d.version, 'R1', NULL, 'the reload does not record itself in the table properties', false
        FROM detail AS d LEFT JOIN metadata AS m ON m.version = d.version AND NOT m.is_state
        WHERE d.kind = 'reload' AND (coalesce(m.said->>'cutover.commit', '') <> commit OR (m.said->>'cutover.connector') <> connector
            OR try_cast(m.said->>'cutover.generation' AS BIGINT) IS DISTINCT FROM generation
            OR try_cast(m.said->>'cutover.step' AS BIGINT) IS DISTINCT FROM "to")
        UNION ALL SELECT version, 'R1', NULL, format('the properties say mode {} and key {}, which the commit contradicts',
                                                     coalesce(said->>'cutover.mode', 'none'), coalesce(said->>'cutover.key', 'none')), false
        FROM detail WHERE (said->>'cutover.generation') = generation::VARCHAR AND ((said->>'cutover.key') = '[]' AND rows.u > 0
            OR (said->>'cutover.mode') = 'snapshot' AND kind = 'append' AND counted > 0)
        -- R2: continuity.
        UNION ALL SELECT version, 'R2', NULL, format('the {} covers ({}, {}]', kind, "from", "to"), false
        FROM ours WHERE CASE kind WHEN 'reload' THEN "from" IS NOT NULL WHEN 'append' THEN "from" >= "to" ELSE "from" <> "to" END
        UNION ALL SELECT version, 'R2', NULL, format('{}: the {} starts at step {}, the commit before it ended at {}',
                                                     if("from" > before_to, 'a gap', 'steps twice'), kind, "from", before_to), false
        FROM ours WHERE kind <> 'reload' AND "from" <> before_to
        UNION ALL SELECT version, 'R2', NULL, format('the digest of the generation is {}, its commits add up to {}', coalesce(digest_total, 'not told'), expected), false
        FROM (SELECT *, CASE WHEN kind = 'reload' THEN digest WHEN before_total IS NOT NULL THEN printf('%016x%016x',
                  ((high + low // 18446744073709551616) % 18446744073709551616)::UBIGINT, (low % 18446744073709551616)::UBIGINT) END AS expected
              FROM (SELECT *, ('0x' || before_total[1:16])::UBIGINT::HUGEINT + ('0x' || digest[1:16])::UBIGINT::HUGEINT AS high,
                           ('0x' || before_total[17:32])::UBIGINT::HUGEINT + ('0x' || digest[17:32])::UBIGINT::HUGEINT AS low FROM ours))
        WHERE expected IS NOT NULL AND digest_total IS DISTINCT FROM expected
        UNION ALL SELECT version, 'R2', NULL, format('the rows of the generation are {}, its commits add up to {}', rows_total, expected), false
        FROM (SELECT *, CASE WHEN kind = 'reload' THEN rows WHEN before_rows IS NOT NULL THEN
                  {'i': before_rows.i + rows.i, 'u': before_rows.u + rows.u, 'd': before_rows.d + rows.d} END AS expected FROM ours)
        WHERE rows_total <> expected
        UNION ALL SELECT version, 'R2', NULL, format('a {} counts rows', kind), false
        FROM detail WHERE kind IN ('mark', 'maintenance') AND (counted > 0 OR digest <> repeat('0', 32))
        UNION ALL SELECT o.version, if(w.app = 'cutover/step', 'R2', 'R3'), NULL,
                         format('txn {} is set {} times, to {}; the commit info says {}', w.app, count(number),
                                coalesce(max(number)::VARCHAR, 'nothing'), coalesce(w.number_told::VARCHAR, 'nothing')), false
        FROM (SELECT version, kind, unnest([{'app': 'cutover/step', 'number_told': "to"}, {'app': 'cutover/epoch', 'number_told':
                  CASE WHEN kind IN ('reload', 'mark') THEN epoch END}]) AS w FROM ours) AS o
             LEFT JOIN txns AS t ON t.version = o.version AND t.app = o.w.app AND NOT t.is_state
        GROUP BY o.version, w.app, w.number_told
        HAVING max(number) IS DISTINCT FROM w.number_told OR count(number) > 1 OR count(dated) > 0
        UNION ALL SELECT version, 'R2', NULL, 'the commit info is not the first action, or is there twice', false
        FROM (SELECT version, min(place) FILTER (kind = 'commitInfo') AS place, count(*) FILTER (kind = 'commitInfo') AS times
              FROM actions WHERE NOT is_state GROUP BY version) WHERE version IN (SELECT version FROM ours) AND (place > 0 OR times > 1)
        UNION ALL SELECT version, 'R2', NULL, format('the commit has the action {} {} times', kind, count(*)), false
        FROM actions WHERE kind IN ('metaData', 'protocol') AND NOT is_state AND version IN (SELECT version FROM ours)
        GROUP BY version, kind HAVING count(*) > 1
        UNION ALL SELECT o.version, 'R2', NULL, format('the {} starts at step {}, the state below it ended at {}', o.kind, o."from", t.number), false
        FROM ours AS o, scope, txns AS t
        WHERE o.version = (SELECT min(version) FROM ours) AND base = first - 1 AND t.is_state AND t.app = 'cutover/step'
          AND o.kind <> 'reload' AND o."from" <> t.number
        -- R3: fencing.
        UNION ALL SELECT version, 'R3', NULL, format('generation {}, epoch {} commits after generation {}, epoch {}',
                                                     generation, epoch, before_generation, before_epoch), false
        FROM ours WHERE generation < before_generation OR epoch < before_epoch OR kind = 'reload' AND generation = before_generation
                     OR epoch > before_epoch AND kind NOT IN ('reload', 'mark')
        UNION ALL SELECT max(version), 'R3', NULL, format('the epoch {} has {} writers', epoch, count(DISTINCT writer)), false
        FROM ours GROUP BY epoch HAVING count(DISTINCT writer) > 1
        UNION ALL SELECT version, 'R3', NULL, format('the connector {} commits after {}', connector, before_connector), false
        FROM ours WHERE connector <> before_connector AND NOT (kind = 'mark' AND coalesce(adopted_from, '') = before_connector)
        -- R4: files are added once.
        UNION ALL SELECT max(version), 'R4', path, format('the file is added {} times', count(*)), false
        FROM files WHERE kind = 'add' AND changes AND NOT is_state GROUP BY path, vector HAVING count(*) > 1
        UNION ALL SELECT version, 'R4', NULL, format('a file of the {} comes or goes as if no rows changed', kind), false
        FROM detail WHERE kind IN ('append', 'reload') AND NOT all_change
        UNION ALL SELECT f.version, 'R4', path, 'a file comes with deleted rows, or again with no more of them', false
        FROM files AS f JOIN detail AS d USING (version)
        WHERE d.kind = 'append' AND d.layout = 'current' AND f.kind = 'add' AND NOT is_state
          AND CASE WHEN is_replaced THEN f.deleted <= deleted_before ELSE f.deleted > 0 END
        -- R5: what may not change.
        UNION ALL SELECT version, 'R5', removed, format('an append of layout changelog, or a mark, removes files'), false
        FROM detail WHERE removes > 0 AND (kind = 'mark' OR kind = 'append' AND layout = 'changelog')
        UNION ALL SELECT version, 'R5', NULL, 'the commit changes rows', false FROM strangers WHERE changes
        UNION ALL SELECT version, 'R5', NULL, 'maintenance changes rows', false FROM detail WHERE kind IN ('mark', 'maintenance') AND changes
        UNION ALL SELECT version, 'R5', NULL, format('files of {} rows are replaced by others of {}', rows_gone, rows_added), false
        FROM (SELECT version, is_known, changes, uncounted, gone_uncounted, rows_gone, rows_added FROM strangers
              UNION ALL SELECT version, is_known, changes, uncounted, gone_uncounted, rows_gone, rows_added FROM detail WHERE kind = 'maintenance')
        WHERE is_known AND NOT changes AND uncounted = 0 AND gone_uncounted = 0 AND rows_gone <> rows_added
        UNION ALL SELECT version, 'R5', removed, 'the commit removes a file that was not live', false
        FROM (SELECT version, is_known, strays, removed FROM strangers
              UNION ALL SELECT version, is_known, strays, removed FROM detail WHERE kind IN ('maintenance', 'append')) WHERE is_known AND strays > 0
        UNION ALL SELECT t.version, 'R5', NULL, format('a commit without our commit info sets txn {} to {}', app, number), false
        FROM txns AS t JOIN strangers USING (version) WHERE NOT is_state
        UNION ALL SELECT m.version, 'R5', NULL, 'a commit of others changes properties of ours, the schema, the partitioning or the table''s id', false
        FROM judged AS m JOIN strangers USING (version)
        WHERE before_body IS NOT NULL AND (properties <> before_properties OR (body->>'id') <> (before_body->>'id') OR fields <> before_fields
            OR partitioning <> before_partitioning OR (said->>'delta.setTransactionRetentionDuration') IS NOT NULL)
        UNION ALL SELECT m.version, 'R5', NULL, format('a {} changes the table''s metadata', o.kind), false
        FROM judged AS m JOIN ours AS o USING (version)
        WHERE o.kind <> 'reload' AND NOT m.is_state AND before_body IS NOT NULL AND (o.kind NOT IN ('append', 'mark')
            OR (body->>'id') <> (before_body->>'id') OR partitioning <> before_partitioning OR fields[:len(before_fields)] <> before_fields
            OR o.kind = 'append' AND properties <> before_properties OR o.kind = 'mark' AND (o.adopted_from IS NULL OR fields <> before_fields))
        -- R6: counts.
        UNION ALL SELECT version, 'R6', NULL, format('the files added hold {} rows, the commit info counts {}', if(layout = 'current', new_rows, rows_added), rows), false
        FROM detail WHERE kind <> 'maintenance' AND (uncounted > 0 OR
            if(layout = 'current' AND kind = 'append', new_rows <> rows.i + rows.u, rows_added <> counted))
        UNION ALL SELECT version, 'R6', NULL, format('{} rows of older files are deleted, the commit info counts {}', rows_gone - rows_again, rows), false
        FROM detail WHERE kind = 'append' AND layout = 'current' AND is_known AND gone_uncounted = 0 AND rows_gone - rows_again <> rows.u + rows.d
        UNION ALL SELECT version, 'R6', NULL, format('the operation metrics are {}, the commit has {} new files of {} bytes', coalesce(metrics::VARCHAR, 'missing'), new_files, new_bytes), false
        FROM detail WHERE kind <> 'maintenance' AND (coalesce(metrics->>'numFiles', '') <> new_files::VARCHAR
            OR coalesce(metrics->>'numOutputBytes', '') <> new_bytes::VARCHAR
            OR coalesce(metrics->>'numOutputRows', '') <> if(layout = 'current' AND kind = 'append', rows.i + rows.u, counted)::VARCHAR
            OR (metrics->>'numRemovedFiles') IS DISTINCT FROM
               CASE WHEN kind = 'reload' OR removes > 0 THEN (removes - (adds - new_files))::VARCHAR END)
        UNION ALL SELECT version, 'R2', NULL, 'isBlindAppend is not what the commit does', false
        FROM detail WHERE kind <> 'maintenance' AND try_cast(info->>'isBlindAppend' AS BOOLEAN) IS DISTINCT FROM (kind <> 'reload' AND removes = 0)
        UNION ALL SELECT f.version, 'R6', f.path, 'the file has another number of partition values than the table has partition columns', false
        FROM files AS f JOIN ours USING (version) ASOF JOIN metadata AS m ON f.version >= m.version
        WHERE f.kind = 'add' AND NOT f.is_state AND partition_values <> coalesce(json_array_length(m.partitioning), 0)
        -- The newest version: properties, txn, files.
        UNION ALL SELECT n.version, 'R1', NULL, format('the properties say generation {}, the last commit {}', said->>'cutover.generation', n.generation), true
        FROM newest AS n, (SELECT arg_max(said, version) AS said FROM metadata) WHERE (said->>'cutover.generation') <> n.generation::VARCHAR
        UNION ALL SELECT n.version, 'R2', NULL, format('the table''s txn says step {}, the last commit {}', number, n.step), true
        FROM newest AS n, (SELECT arg_max(number, version) AS number FROM txns WHERE app = 'cutover/step') WHERE number <> n.step
        UNION ALL SELECT n.version, 'R3', NULL, format('the table''s txn says epoch {}, the last commit {}', number, n.epoch), true
        FROM newest AS n, (SELECT arg_max(number, version) AS number FROM txns WHERE app = 'cutover/epoch') WHERE number <> n.epoch
        UNION ALL SELECT f.version, 'R6', f.path, coalesce(format('the file has {} bytes, the log says {}', s.size, f.size), 'the file is gone'), true
        FROM files AS f LEFT JOIN sizes AS s ON s.path = url_decode(f.path), newest AS n
        WHERE is_live AND n.version IS NOT NULL AND s.size IS DISTINCT FROM f.size
        UNION ALL SELECT v.version, 'R6', v.path, concat('the deletion vector ', v.vector_file, ' is gone or too short'), true
        FROM (SELECT *, concat(CASE WHEN len(place) > 20 THEN place[:-21] || '/' END, 'deletion_vector_', id[1:8], '-', id[9:12], '-', id[13:16], '-',
                              id[17:20], '-', id[21:32], '.bin') AS vector_file
              FROM (SELECT *, array_to_string(list_transform(range(4), lambda word: printf('%08x', list_reduce(list_transform(range(5), lambda digit:
                               strpos('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#',
                                      place[len(place) - 19 + word * 5 + digit]) - 1), lambda sum, value: sum * 85 + value))), '') AS id
                    FROM (SELECT *, descriptor->>'pathOrInlineDv' AS place FROM files
                          WHERE is_live AND (descriptor->>'storageType') = 'u' AND len(descriptor->>'pathOrInlineDv') >= 20))) AS v
             LEFT JOIN sizes AS s ON s.path = v.vector_file
        WHERE coalesce(s.size, 0) < coalesce(try_cast(descriptor->>'offset' AS BIGINT), 1) + try_cast(descriptor->>'sizeInBytes' AS BIGINT) + 8
    ), rows_live AS (
        SELECT n.version, 'R6' AS rule, NULL AS file, format('the live files have {} rows, the commits come to {}', live, expected) AS message, true AS lasts
        FROM (SELECT coalesce(sum(records - deleted), 0) AS live, count(*) FILTER (records IS NULL) AS uncounted FROM files WHERE is_live),
             (SELECT *, rows_total.i + (rows_total.u + rows_total.d) * if(layout = 'current', 0, 1) - rows_total.d * if(layout = 'current', 1, 0) AS expected
              FROM newest, (SELECT arg_max(layout, version) AS layout FROM metadata)) AS n, scope
        WHERE known_from IS NOT NULL AND uncounted = 0 AND live <> expected AND NOT EXISTS (FROM found)
    ), unclear AS (
        SELECT version, 'R5' AS rule, NULL AS file, 'files are replaced by others whose rows cannot be counted' AS message
        FROM strangers WHERE is_known AND NOT changes AND uncounted + gone_uncounted > 0
        UNION ALL SELECT first, 'R6', NULL, 'the log begins here, above a checkpoint that was not read: call it with expired := true'
        FROM scope WHERE known_from IS NULL AND checkpoint >= first - 1 AND NOT expired
        UNION ALL SELECT min(version), 'R6', NULL, 'the checkpoint has sidecars, which are not read' FROM actions WHERE is_state AND kind = 'sidecar' HAVING count(*) > 0
        UNION ALL SELECT last, 'R6', NULL, 'the log no longer holds a commit of Cutover, so only files and properties were checked'
        FROM scope WHERE NOT EXISTS (FROM ours)
        UNION ALL SELECT last, 'R7', NULL, format('the table has the contract {}, known is 1', contract)
        FROM scope, (SELECT arg_max(said->>'cutover.contract', version) AS contract FROM metadata) WHERE contract <> '1'
        UNION ALL SELECT last, 'R7', NULL, 'the table is not Cutover''s: it has neither properties nor commits of it'
        FROM scope, (SELECT arg_max(said->>'cutover.contract', version) AS contract FROM metadata)
        WHERE contract IS NULL AND NOT EXISTS (FROM ours) AND NOT EXISTS (FROM every_commit, scope WHERE kind = 'missing' AND version > checkpoint)
    )
    SELECT f.version, rule, file, coalesce(message, 'a value is missing') AS message, if(f.version < n.reload AND NOT lasts, 'older', 'broken') AS severity
    FROM (FROM found UNION ALL FROM rows_live) AS f, newest AS n
    UNION ALL SELECT version, rule, file, message, 'unclear' FROM unclear
    ORDER BY version, rule;

-- The verdict in one row, where the table stands, and the findings that lead to it. It raises no error for a broken table.
CREATE OR REPLACE MACRO cutover_verdict(uri, expired := false) AS TABLE
    WITH found AS MATERIALIZED (FROM cutover_findings(uri, expired := expired))
    SELECT CASE WHEN EXISTS (FROM found WHERE rule = 'R7') THEN 'inconclusive'
                WHEN EXISTS (FROM found WHERE severity = 'broken') THEN 'broken'
                WHEN EXISTS (FROM found WHERE severity = 'unclear') THEN 'inconclusive'
                ELSE 'healthy' END AS verdict,
           c.connector, c.generation, c.cutover, c.last_step, c.since_version, c.version,
           (SELECT coalesce(list({'version': f.version, 'rule': rule, 'file': file, 'message': message, 'severity': severity}
                                 ORDER BY f.version), []) FROM found AS f) AS findings
    FROM cutover_cutover(uri, expired := expired) AS c;

-- The same row when the table is healthy; an error with the findings when it is not, so that a job stops.
CREATE OR REPLACE MACRO cutover_assert(uri, expired := false) AS TABLE
    SELECT * REPLACE (CASE WHEN verdict = 'healthy' THEN verdict ELSE error(format('{} is {}: {}', uri, verdict, array_to_string(
        list_transform(list_filter(findings, lambda f: f.severity <> 'older'),
                       lambda f: format('version {}, {}: {}', f.version, f.rule, f.message)), '; '))) END AS verdict)
    FROM cutover_verdict(uri, expired := expired);
