#!/usr/bin/env bash
# Whether the simulation would notice: each patch in tests/mutants takes one rule of the protocol away, and the
# simulation must find a violation.
#
#     tests/mutants.sh [SEEDS [NAME...]]
#
# A copy of the checkout is patched and built without optimization, in target/mutants; the working tree is not touched.
# Fails when a patch does not apply, when the simulation is broken without one, or when a mutant breaks no rule in SEEDS
# seeds (1000).
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-1000}
shift $(($# > 0 ? 1 : 0))
target=${CARGO_TARGET_DIR:-$PWD/target}/mutants
copy=$target/checkout
log=$target/log
mkdir -p "$target"
export CARGO_TARGET_DIR=$target CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_INCREMENTAL=1 RUST_BACKTRACE=0
unset CUTOVER_SEED

fresh() {
    mkdir -p "$copy"
    # What the checkout lacks is there no more.
    find "$copy" -type f -printf '%P\n' | while read -r file; do
        [ -f "$file" ] || rm "$copy/$file"
    done
    # Only what differs is written, so that only that is built again.
    git ls-files --cached --others --exclude-standard | while read -r file; do
        [ -f "$file" ] && ! cmp --silent "$file" "$copy/$file" || continue
        mkdir -p "$copy/$(dirname "$file")"
        cp "$file" "$copy/$file"
    done
    # The rest of the tests is not needed, and takes long to build.
    printf '%s\n' '//! The simulation alone.' '#![allow(clippy::all, dead_code, unused)]' \
        'mod faults;' 'mod object_stores { pub(crate) mod server; }' 'mod program;' 'mod simulation;' 'mod tables;' \
        'mod vectors;' 'mod world;' >"$copy/tests/it/main.rs"
}

simulate() {
    (cd "$copy" && CUTOVER_SEEDS=$1 cargo test --locked --test it simulation::seeds -- --nocapture) >"$log" 2>&1
}

build() {
    (cd "$copy" && cargo test --locked --test it --no-run) >"$log" 2>&1 || { cat "$log"; exit 1; }
}

fresh
build
simulate 20 || { cat "$log"; echo "tests/mutants.sh: the simulation fails without any mutant"; exit 1; }

missed=()
caught=0
for patch in tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    fresh
    (cd "$copy" && patch --strip=1 --fuzz=3 --forward --no-backup-if-mismatch) <"$patch" >"$log" ||
        { cat "$log"; echo "tests/mutants.sh: $patch does not apply; make it anew"; exit 1; }
    build
    if simulate "$seeds"; then
        missed+=("$name")
        echo "$name: breaks no rule in $seeds seeds"
    else
        caught=$((caught + 1))
        grep --max-count=1 '^seed ' "$log" | cut --characters=1-200 | sed "s/^/$name: /" ||
            { cat "$log"; echo "tests/mutants.sh: $name fails, and not by a violation"; exit 1; }
    fi
done
echo "tests/mutants.sh: $caught mutants caught${missed:+, missed: ${missed[*]}}"
[ ${#missed[@]} -eq 0 ]
