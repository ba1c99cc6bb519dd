#!/usr/bin/env bash
# Fills a folder with the files of a release:  dist.sh FOLDER STATIC-AGENT
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?folder} agent=${2:?path of the static agent}

say() { printf 'dist: %s\n' "$*"; }
die() {
    say "$*" >&2
    exit 1
}

# A static program has no interpreter and loads no libraries.
kind=$(file -b "$agent")
case $kind in
*'dynamically linked'* | *interpreter*) die "$agent is not static: $kind" ;;
*'statically linked'* | *static-pie*) ;;
*) die "file(1) does not recognise $agent as a program: $kind" ;;
esac

# Not static as in the image: they run on other machines, where glibc loads the modules that
# nsswitch.conf names (systemd-resolved, SSSD). Those load the C library of that machine, and a static
# program has another one.
cargo build --profile collector -p virtfleet-collector --bin virtfleet-collector --bin virtfleetctl

rm -rf "$out"
mkdir -p "$out/bin" "$out/man/man1" "$out/completions"
install -m 755 "$agent" target/collector/virtfleet-collector target/collector/virtfleetctl "$out/bin/"
# kubectl finds a plugin by its name.
ln -s virtfleetctl "$out/bin/kubectl-virtfleet"
cargo run --quiet -p virtfleet-tests --bin virtfleet-manual -- "$out"
packaging/deb/build.sh "$out" "$agent" "$out"
packaging/rpm/build.sh "$out" "$agent" "$out"
packaging/tar/build.sh "$out" "$agent" "$out"
install -m 644 LICENSE README.md CHANGELOG.md "$out/"
(cd "$out" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)

say "$out:"
(cd "$out" && find . -type f -printf '%9s  %P\n' | sort -k2)
