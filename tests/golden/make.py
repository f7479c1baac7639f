"""Makes the tables of this folder anew, each by another engine, and packs them.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt && venv/bin/python make.py [NAME ...]

Each NAME.tar.zst holds NAME/delta, the table, and NAME/expected/rows.parquet, its rows as the engine that made it reads
them. `manifest.json` says what each holds and who made it. Made again, a table has other ids, times and file names.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import pyarrow.parquet as pq

import by_deltalake
import by_duckdb
import by_sail

HERE = pathlib.Path(__file__).parent
WRITERS = [by_deltalake, by_sail, by_duckdb]


def pack(folder, name):
    archive = HERE / f"{name}.tar.zst"
    owner = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
    compress = ["--use-compress-program", "zstd -19"]
    subprocess.run(["tar", *owner, *compress, "-cf", archive, "-C", folder, name], check=True)
    return archive.stat().st_size


def main():
    wanted = set(sys.argv[1:])
    path = HERE / "manifest.json"
    manifest = json.loads(path.read_text()) if wanted and path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        for writer in WRITERS:
            made_by = writer.version()
            for name, make in writer.TABLES.items():
                if wanted and name not in wanted:
                    continue
                home = pathlib.Path(folder) / name
                (home / "expected").mkdir(parents=True)
                table = home / "delta"
                make(str(table))
                rows = writer.read(str(table))
                pq.write_table(rows, home / "expected" / "rows.parquet", compression="zstd")
                size = pack(folder, name)
                print(f"{name}: {len(rows)} rows, {size} bytes")
                holds = " ".join(make.__doc__.split())
                manifest[name] = {"writer": made_by, "holds": holds, "rows": len(rows)}
    path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
