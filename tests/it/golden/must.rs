//! What each golden table must do as the target of a reload.

/// What a run with `on_existing = "truncate"` must do to a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Must {
    Reload,
    Refuse {
        code: i32,
        reason: &'static str,
        remedy: &'static str,
    },
    /// Refuse it, and name the reset that then loads it.
    Repair {
        code: i32,
        reason: &'static str,
    },
}

pub(super) const RELOAD: Must = Must::Reload;
const MAPPED_PARTITIONS: Must =
    incompatible("DuckDB reads the partition columns of such a table as null", "partition_by = []");
const CONSTRAINED: Must = incompatible("the table property delta.constraints.", "DROP CONSTRAINT");
const APPEND_ONLY: Must = incompatible("which forbids a reload", "SET TBLPROPERTIES");
const FORGETFUL: Must = incompatible("delta.setTransactionRetentionDuration", "UNSET TBLPROPERTIES");
const NO_SCHEMA: Must = damaged("missing field `schemaString`");
const NO_METADATA: Must = damaged("none of it holds the table's metadata");
const BAD_CHECKPOINT: Must = damaged("the log cannot be replayed from its checkpoint of version 10");
const NO_LOG: Must = Must::Repair { code: 5, reason: "but no Delta log" };

const fn incompatible(reason: &'static str, remedy: &'static str) -> Must {
    Must::Refuse { code: 5, reason, remedy }
}

const fn damaged(reason: &'static str) -> Must {
    Must::Repair { code: 3, reason }
}

/// What each table must do; those of tests/golden begin with the name of the engine that made them.
pub(super) const MUST: &[(&str, Must)] = &[
    ("124-decimal-decode-bug", RELOAD),
    ("125-iterator-bug", RELOAD),
    ("basic-decimal-table", RELOAD),
    ("basic-with-inserts-deletes-checkpoint", RELOAD),
    ("basic-with-inserts-merge", RELOAD),
    ("basic-with-vacuum-protocol-check-feature", RELOAD),
    ("canonicalized-paths-normal-a", RELOAD),
    ("canonicalized-paths-special-b", RELOAD),
    ("cdf-column-mapping-name-mode", RELOAD),
    ("cdf-table-simple", RELOAD),
    ("cdf-table-with-dv", RELOAD),
    ("checkpoint", RELOAD),
    ("data-reader-escaped-chars", RELOAD),
    ("data-reader-map", RELOAD),
    ("data-reader-nested-struct", RELOAD),
    ("data-reader-partition-values", RELOAD),
    ("data-reader-primitives", RELOAD),
    ("data-reader-timestamp_ntz", RELOAD),
    ("data-skipping-basic-stats-all-types", RELOAD),
    ("delete-re-add-same-file-different-transactions", RELOAD),
    ("deltalake-app-txn", RELOAD),
    ("deltalake-append-only", APPEND_ONLY),
    ("deltalake-change-feed", RELOAD),
    ("deltalake-change-feed-off", RELOAD),
    ("deltalake-checkpoint", RELOAD),
    ("deltalake-checkpoint-below", RELOAD),
    ("deltalake-cleaned-log", RELOAD),
    ("deltalake-commit-info", RELOAD),
    ("deltalake-compacted-log", RELOAD),
    ("deltalake-constraint", CONSTRAINED),
    ("deltalake-constraint-dropped", RELOAD),
    ("deltalake-deletion-vectors-allowed", RELOAD),
    ("deltalake-domain-metadata", RELOAD),
    ("deltalake-empty", RELOAD),
    ("deltalake-evolved", RELOAD),
    ("deltalake-iceberg-compat", RELOAD),
    ("deltalake-invariant", RELOAD),
    ("deltalake-many-versions", RELOAD),
    ("deltalake-merged", RELOAD),
    ("deltalake-named", RELOAD),
    ("deltalake-nested", RELOAD),
    ("deltalake-odd-column-names", RELOAD),
    ("deltalake-optimized", RELOAD),
    ("deltalake-overwritten", RELOAD),
    ("deltalake-overwritten-where", RELOAD),
    ("deltalake-partitioned-by-odd-strings", RELOAD),
    ("deltalake-partitioned-by-types", RELOAD),
    ("deltalake-plain", RELOAD),
    ("deltalake-primitives", RELOAD),
    ("deltalake-renamed", RELOAD),
    ("deltalake-restored", RELOAD),
    ("deltalake-row-tracking-supported", RELOAD),
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
    ("duckdb-partitioned", RELOAD),
    ("duckdb-three-writers", RELOAD),
    ("dv-partitioned-with-checkpoint", RELOAD),
    ("kernel-timestamp-int96", RELOAD),
    ("log-replay-dv-key-cases", RELOAD),
    ("log-replay-special-characters-a", RELOAD),
    ("no-delta-log-folder", NO_LOG),
    ("only-checkpoint-files", RELOAD),
    ("parquet-all-types", RELOAD),
    ("sail-append-only", APPEND_ONLY),
    ("sail-changed", RELOAD),
    ("sail-checkpoint", RELOAD),
    ("sail-column-default", RELOAD),
    ("sail-column-mapping-deletion-vectors", RELOAD),
    ("sail-column-mapping-id", RELOAD),
    ("sail-column-mapping-name", RELOAD),
    ("sail-column-mapping-partitioned", MAPPED_PARTITIONS),
    ("sail-constraint", CONSTRAINED),
    ("sail-deletion-vectors", RELOAD),
    ("sail-deletion-vectors-checkpoint", RELOAD),
    ("sail-deletion-vectors-partitioned", RELOAD),
    ("sail-described", RELOAD),
    ("sail-generated-column", RELOAD),
    ("sail-identity-column", RELOAD),
    ("sail-in-commit-timestamps", RELOAD),
    ("sail-partitioned", RELOAD),
    ("sail-partitioned-by-times", RELOAD),
    ("sail-plain", RELOAD),
    ("sail-timestamp-ntz", RELOAD),
    ("sail-type-widening", RELOAD),
    ("sail-v2-checkpoint", RELOAD),
    ("sail-variant", RELOAD),
    ("snapshot-data1", RELOAD),
    ("snapshot-data3", RELOAD),
    ("snapshot-vacuumed", RELOAD),
    ("table-with-columnmapping-mode-id", RELOAD),
    ("time-travel-schema-changes-b", RELOAD),
    ("timestamp-partitioned-table", RELOAD),
    ("v2-checkpoint-json", RELOAD),
    ("v2-checkpoints-parquet-without-sidecars", RELOAD),
    ("v2-classic-checkpoint-parquet", RELOAD),
];
