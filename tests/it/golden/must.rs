//! What each golden table must do as the target of a reload.

/// What a run with `on_existing = "truncate"` must do to a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Must {
    Reload,
    Refuse { code: i32, reason: &'static str, remedy: &'static str },
}

pub(super) const RELOAD: Must = Must::Reload;
const PARTITIONED: Must = incompatible("the table is partitioned by", "choose another uri");
const MAPPED: Must = incompatible("the table property delta.columnMapping.mode is", "unset it");
const CHANGE_FEED: Must = incompatible("the table property delta.enableChangeDataFeed is \"true\"", "unset it");
const CONSTRAINED: Must = incompatible("the table property delta.constraints.", "unset it");
const APPEND_ONLY: Must = incompatible("which forbids a reload", "SET TBLPROPERTIES");
const FORGETFUL: Must = incompatible("delta.setTransactionRetentionDuration", "UNSET TBLPROPERTIES");
const NOT_KEPT: Must = incompatible("which is not kept here", "DROP FEATURE");
const NO_SCHEMA: Must = damaged("missing field `schemaString`");
const NO_METADATA: Must = damaged("none of it holds the table's metadata");
const BAD_CHECKPOINT: Must = damaged("the log cannot be replayed from its checkpoint of version 10");
const NO_LOG: Must = Must::Refuse { code: 5, reason: "but no Delta log", remedy: "restore its _delta_log" };

const fn incompatible(reason: &'static str, remedy: &'static str) -> Must {
    Must::Refuse { code: 5, reason, remedy }
}

const fn damaged(reason: &'static str) -> Must {
    Must::Refuse { code: 3, reason, remedy: "restore the damaged files of _delta_log" }
}

/// What each table must do; those of tests/golden begin with the name of the engine that made them.
pub(super) const MUST: &[(&str, Must)] = &[
    ("124-decimal-decode-bug", RELOAD),
    ("125-iterator-bug", RELOAD),
    ("basic-decimal-table", PARTITIONED),
    ("basic-with-inserts-deletes-checkpoint", RELOAD),
    ("basic-with-inserts-merge", RELOAD),
    ("basic-with-vacuum-protocol-check-feature", RELOAD),
    ("canonicalized-paths-normal-a", RELOAD),
    ("canonicalized-paths-special-b", RELOAD),
    ("cdf-column-mapping-name-mode", CHANGE_FEED),
    ("cdf-table-simple", CHANGE_FEED),
    ("cdf-table-with-dv", CHANGE_FEED),
    ("checkpoint", RELOAD),
    ("data-reader-escaped-chars", PARTITIONED),
    ("data-reader-map", RELOAD),
    ("data-reader-nested-struct", RELOAD),
    ("data-reader-partition-values", PARTITIONED),
    ("data-reader-primitives", RELOAD),
    ("data-reader-timestamp_ntz", PARTITIONED),
    ("data-skipping-basic-stats-all-types", RELOAD),
    ("delete-re-add-same-file-different-transactions", RELOAD),
    ("deltalake-app-txn", RELOAD),
    ("deltalake-append-only", APPEND_ONLY),
    ("deltalake-change-feed", CHANGE_FEED),
    ("deltalake-change-feed-off", RELOAD),
    ("deltalake-checkpoint", RELOAD),
    ("deltalake-checkpoint-below", RELOAD),
    ("deltalake-cleaned-log", RELOAD),
    ("deltalake-commit-info", RELOAD),
    ("deltalake-compacted-log", RELOAD),
    ("deltalake-constraint", CONSTRAINED),
    ("deltalake-constraint-dropped", RELOAD),
    ("deltalake-deletion-vectors-allowed", RELOAD),
    ("deltalake-domain-metadata", NOT_KEPT),
    ("deltalake-empty", RELOAD),
    ("deltalake-evolved", RELOAD),
    ("deltalake-iceberg-compat", NOT_KEPT),
    ("deltalake-invariant", RELOAD),
    ("deltalake-many-versions", RELOAD),
    ("deltalake-merged", RELOAD),
    ("deltalake-named", RELOAD),
    ("deltalake-nested", RELOAD),
    ("deltalake-odd-column-names", RELOAD),
    ("deltalake-optimized", RELOAD),
    ("deltalake-overwritten", RELOAD),
    ("deltalake-overwritten-where", RELOAD),
    ("deltalake-partitioned-by-odd-strings", PARTITIONED),
    ("deltalake-partitioned-by-types", PARTITIONED),
    ("deltalake-plain", RELOAD),
    ("deltalake-primitives", RELOAD),
    ("deltalake-renamed", RELOAD),
    ("deltalake-restored", RELOAD),
    ("deltalake-row-tracking-supported", NOT_KEPT),
    ("deltalake-timestamp-ntz", RELOAD),
    ("deltalake-txn-retention", FORGETFUL),
    ("deltalake-vacuumed", RELOAD),
    ("deltalake-wide", RELOAD),
    ("deltalake-z-ordered", RELOAD),
    ("deltalog-commit-info", NO_SCHEMA),
    ("deltalog-state-reconstruction-from-checkpoint-missing-protocol", BAD_CHECKPOINT),
    ("deltalog-state-reconstruction-without-metadata", NO_METADATA),
    ("duckdb-app-txn", RELOAD),
    ("duckdb-checkpoint", RELOAD),
    ("duckdb-inserted", RELOAD),
    ("duckdb-partitioned", PARTITIONED),
    ("duckdb-three-writers", RELOAD),
    ("dv-partitioned-with-checkpoint", PARTITIONED),
    ("kernel-timestamp-int96", PARTITIONED),
    ("log-replay-dv-key-cases", RELOAD),
    ("log-replay-special-characters-a", RELOAD),
    ("no-delta-log-folder", NO_LOG),
    ("only-checkpoint-files", RELOAD),
    ("parquet-all-types", RELOAD),
    ("sail-append-only", APPEND_ONLY),
    ("sail-changed", RELOAD),
    ("sail-checkpoint", RELOAD),
    ("sail-column-default", NOT_KEPT),
    ("sail-column-mapping-deletion-vectors", MAPPED),
    ("sail-column-mapping-id", MAPPED),
    ("sail-column-mapping-name", MAPPED),
    ("sail-column-mapping-partitioned", MAPPED),
    ("sail-constraint", CONSTRAINED),
    ("sail-deletion-vectors", RELOAD),
    ("sail-deletion-vectors-checkpoint", RELOAD),
    ("sail-deletion-vectors-partitioned", PARTITIONED),
    ("sail-described", RELOAD),
    ("sail-generated-column", RELOAD),
    ("sail-identity-column", RELOAD),
    ("sail-in-commit-timestamps", NOT_KEPT),
    ("sail-partitioned", PARTITIONED),
    ("sail-partitioned-by-times", PARTITIONED),
    ("sail-plain", RELOAD),
    ("sail-timestamp-ntz", RELOAD),
    ("sail-type-widening", NOT_KEPT),
    ("sail-v2-checkpoint", RELOAD),
    ("sail-variant", NOT_KEPT),
    ("snapshot-data1", RELOAD),
    ("snapshot-data3", RELOAD),
    ("snapshot-vacuumed", RELOAD),
    ("table-with-columnmapping-mode-id", MAPPED),
    ("time-travel-schema-changes-b", RELOAD),
    ("timestamp-partitioned-table", PARTITIONED),
    ("v2-checkpoint-json", RELOAD),
    ("v2-checkpoints-parquet-without-sidecars", RELOAD),
    ("v2-classic-checkpoint-parquet", RELOAD),
];
