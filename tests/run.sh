#!/usr/bin/env bash
# Runs the tests; arguments go to `cargo test`. The readers that check tables, and what attacks the daemon, live in a Python virtual environment,
# made once in $CUTOVER_VENV (default target/readers-venv) and again when their pinned versions change.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(realpath -m "${CUTOVER_VENV:-target/readers-venv}")
requirements=tests/readers/requirements.txt

# The copy is written last, so an interrupted installation is done again.
if cmp -s "$requirements" "$venv/installed.txt"; then
    echo "tests/run.sh: readers are in $venv"
else
    echo "tests/run.sh: installing the readers into $venv"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$venv/installed.txt"
fi

export CUTOVER_PYTHON=$venv/bin/python
"$CUTOVER_PYTHON" tests/readers/digest.py
echo "tests/run.sh: cargo test --locked $*"
exec cargo test --locked "$@"
