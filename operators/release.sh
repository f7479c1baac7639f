#!/usr/bin/env bash
# Makes a release: operators/release.sh [--program FILE] [DIRECTORY]
#
# Builds the program with the versions of Cargo.lock, or takes the FILE that was built before, strips it, and packs it with
# documents, completions and what operators need into DIRECTORY (target/dist). Prints what came of it, with sizes in bytes.
# CARGO_TARGET_DIR says where builds are. The same program gives the same archive, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

program=
if [ "${1:-}" = --program ]; then
    program=$(realpath -e "$2")
    shift 2
fi
target=${CARGO_TARGET_DIR:-target}
out=$(realpath -m "${1:-$target/dist}")

if [ -z "$program" ]; then
    cargo build --release --locked --bin cutover
    program=$target/release/cutover
fi
version=$("$program" --version | cut -d ' ' -f 2)
name=cutover-$version-$(uname -m)-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name

install -D -m 0755 "$program" "$tree/bin/cutover"
strip --strip-all "$tree/bin/cutover"
install -D -m 0644 -t "$tree" README.md PROTOCOL.md REST.md CHANGELOG.md LICENSE
install -D -m 0644 -t "$tree/docs" docs/OPERATING.md
install -D -m 0644 -t "$tree/operators" operators/{cutover.service,alerts.yml,grafana.json}
for shell in bash elvish fish powershell zsh; do
    mkdir -p "$tree/completions"
    "$tree/bin/cutover" completions "$shell" > "$tree/completions/cutover.$shell"
done

mkdir -p "$out"
archive=$out/$name.tar.gz
tar --create --directory "$work" --sort=name --mtime=@"${SOURCE_DATE_EPOCH:-0}" --owner=0 --group=0 --numeric-owner \
    --mode=go=rX,u+rw,a-s "$name" | gzip --no-name > "$archive"
(cd "$out" && sha256sum "$name.tar.gz" > "$name.tar.gz.sha256")

size() { stat --format %s "$1"; }
echo "program $(size "$program")"
echo "stripped $(size "$tree/bin/cutover")"
echo "archive $(size "$archive") $archive"
