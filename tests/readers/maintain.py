"""Maintenance of a table by deltalake: maintain.py WHAT TABLE."""

import sys

from deltalake import DeltaTable

what, path = sys.argv[1:]
table = DeltaTable(path)
match what:
    case "property":
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    case "describe":
        table.alter.set_table_description("a table that others maintain too")
    case "compact":
        table.optimize.compact()
    case "vacuum":
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    case "checkpoint":
        table.create_checkpoint()
    case "clean":
        table.create_checkpoint()
        table.cleanup_metadata()
    case _:
        sys.exit(f"unknown: {what}")
