#!/usr/bin/env bash
# The proof tests at their full sizes, with the release build, again and again until the budget is used up; at least
# one round is run, and one that began is ended.
#
#     tests/deep.sh [MINUTES [SEED]]
#
# Each round has its own seed, printed before it and by each test; CUTOVER_SEED=… repeats what a test decided, but not
# what the machine did meanwhile. CUTOVER_PYTHON names the readers' interpreter; without it tests/run.sh installs them.
# CUTOVER_SECOND_CRASHES=1000000 takes every second crash inside the recovery from every first one, which takes hours.
# CUTOVER_SEEDS_LAYOUT=changelog or current lets the simulation play tables of one layout alone, not each in half the seeds.
# That the simulation notices a protocol that lacks a rule is shown by tests/mutants.sh, which takes an hour by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60}
seed=${2:-$((RANDOM * 32768 + RANDOM))}
export CUTOVER_POSTGRES_KILLS=${CUTOVER_POSTGRES_KILLS:-100}
export CUTOVER_PGBENCH_SCALE=${CUTOVER_PGBENCH_SCALE:-10} CUTOVER_PGBENCH_SECONDS=${CUTOVER_PGBENCH_SECONDS:-120}
export CUTOVER_PGBENCH_SAMPLES=${CUTOVER_PGBENCH_SAMPLES:-20}
export CUTOVER_RELOADS=${CUTOVER_RELOADS:-50} CUTOVER_RELOAD_ROWS=${CUTOVER_RELOAD_ROWS:-1000000}
export CUTOVER_CURRENT_CRASHES_ONE_IN=${CUTOVER_CURRENT_CRASHES_ONE_IN:-1} CUTOVER_CURRENT_SECOND_CRASHES=${CUTOVER_CURRENT_SECOND_CRASHES:-2000}
export CUTOVER_TPCH_SF=${CUTOVER_TPCH_SF:-0.1} CUTOVER_TPCH_STEPS=${CUTOVER_TPCH_STEPS:-100}
export CUTOVER_CURRENT_KILLS=${CUTOVER_CURRENT_KILLS:-100} CUTOVER_CURRENT_STEPS=${CUTOVER_CURRENT_STEPS:-600}
export CUTOVER_KILLS=${CUTOVER_KILLS:-300} CUTOVER_S3_KILLS=${CUTOVER_S3_KILLS:-100} CUTOVER_S3_CASES=${CUTOVER_S3_CASES:-1000}
export CUTOVER_SCHEMAS=${CUTOVER_SCHEMAS:-10000} CUTOVER_PREDICATES=${CUTOVER_PREDICATES:-3000}
export CUTOVER_PARTITIONS=${CUTOVER_PARTITIONS:-5000} CUTOVER_PARTITION_ROWS=${CUTOVER_PARTITION_ROWS:-500000}
export CUTOVER_COLUMNS=${CUTOVER_COLUMNS:-10000}
export CUTOVER_JOB_APPENDS=${CUTOVER_JOB_APPENDS:-500} CUTOVER_COMMITS=${CUTOVER_COMMITS:-10000}
export CUTOVER_SEEDS=${CUTOVER_SEEDS:-20000} CUTOVER_SEEDS_TWICE=${CUTOVER_SEEDS_TWICE:-100}
export CUTOVER_HISTORIES=${CUTOVER_HISTORIES:-10000} CUTOVER_LOGS=${CUTOVER_LOGS:-400}
export CUTOVER_DAMAGES=${CUTOVER_DAMAGES:-1000} CUTOVER_CRASH_EVERY=${CUTOVER_CRASH_EVERY:-1}
export CUTOVER_SECOND_CRASHES=${CUTOVER_SECOND_CRASHES:-20000} CUTOVER_TROUBLES=${CUTOVER_TROUBLES:-1000000}
export CUTOVER_POWER_CUTS=${CUTOVER_POWER_CUTS:-100} CUTOVER_DISK_FAILURES=${CUTOVER_DISK_FAILURES:-5000}
export CUTOVER_CRASHES_ONE_IN=${CUTOVER_CRASHES_ONE_IN:-1} CUTOVER_AMBIGUITY=${CUTOVER_AMBIGUITY:-3}
export CUTOVER_FULL_DISKS=${CUTOVER_FULL_DISKS:-40} CUTOVER_DEEP_ROWS=${CUTOVER_DEEP_ROWS:-10000000}
export CUTOVER_STEP_LOGS=${CUTOVER_STEP_LOGS:-5000} CUTOVER_STEP_LOG_BITS=${CUTOVER_STEP_LOG_BITS:-8}
export CUTOVER_STEP_LOG_CUTS=${CUTOVER_STEP_LOG_CUTS:-200} CUTOVER_STEP_LOG_FAILURES=${CUTOVER_STEP_LOG_FAILURES:-7000}
export CUTOVER_VIEW_ROWS=${CUTOVER_VIEW_ROWS:-1000000} CUTOVER_VIEW_RESETS=${CUTOVER_VIEW_RESETS:-10}
export CUTOVER_SCHEMA_EXAMPLES=${CUTOVER_SCHEMA_EXAMPLES:-200}
export CUTOVER_EGRESS_CLIENTS=${CUTOVER_EGRESS_CLIENTS:-50} CUTOVER_EGRESS_MINUTES=${CUTOVER_EGRESS_MINUTES:-10}
export CUTOVER_DAEMON_KILLS=${CUTOVER_DAEMON_KILLS:-150} CUTOVER_RESTARTS=${CUTOVER_RESTARTS:-100}
export CUTOVER_EVENT_KILLS=${CUTOVER_EVENT_KILLS:-100}
races=${CUTOVER_RACES:-10}
soak=${CUTOVER_SOAK_MINUTES:-20}

run() {
    echo "tests/deep.sh: $* (CUTOVER_SEED=$CUTOVER_SEED)"
    if [ -n "${CUTOVER_PYTHON:-}" ]; then
        cargo test --release --locked --test it -- --nocapture "$@"
    else
        tests/run.sh --release --test it -- --nocapture "$@"
    fi
}

begun=$SECONDS
round=0
while [ $round -eq 0 ] || [ $((SECONDS - begun)) -lt $((minutes * 60)) ]; do
    export CUTOVER_SEED=$((seed + round * 1000))
    run readers:: current::
    run kills:: object_stores:: full_disk::
    run crashes:: ambiguity:: troubles:: disk::
    run steplog:: service::
    CUTOVER_SEED=$((CUTOVER_SEED * 1000)) run simulation::
    run types::
    run postgres::
    run partitions::
    run changes::
    run histories:: damage::
    run rebuild:: deep::
    run maintenance::
    cargo bench --locked --bench soak -- "$soak"
    cargo test --release --locked --lib -- continuity::history
    for _ in $(seq "$races"); do
        CUTOVER_SEED=$((CUTOVER_SEED + 1))
        run two_writers:: feeds::
    done
    round=$((round + 1))
done
echo "tests/deep.sh: $round rounds without a violation in $((SECONDS - begun)) s, from seed $seed"
