#!/usr/bin/env bash
# Builds the agent's RPM package, without an RPM host:  build.sh FOLDER STATIC-AGENT [MANUAL]
#
# MANUAL is a directory with man pages and completions (virtfleet-manual); without it, they are
# generated. The same commit and binary give the same package, byte by byte.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} agent=${2:?path of the static agent} manual=${3:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$manual" ]; then
    manual=$work/manual
    cargo run --quiet -p virtfleet-tests --bin virtfleet-manual -- "$manual"
fi
program=${VIRTFLEET_BIN_VIRTFLEET_RPM:-target/debug/virtfleet-rpm}
[ -n "${VIRTFLEET_BIN_VIRTFLEET_RPM:-}" ] || cargo build --quiet -p virtfleet-rpm
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}

tree=$work/tree
packaging/stage.sh "$tree" "$agent" "$manual"
mkdir -p "$tree/usr/share/zsh/site-functions" "$tree/usr/share/licenses/virtfleet-agent" "$tree/usr/lib/systemd/system-preset"
mv "$tree/usr/share/zsh/vendor-completions/_virtfleet-agent" "$tree/usr/share/zsh/site-functions/"
rmdir "$tree/usr/share/zsh/vendor-completions"
install -m 644 LICENSE "$tree/usr/share/licenses/virtfleet-agent/"
install -m 644 packaging/rpm/50-virtfleet.preset "$tree/usr/lib/systemd/system-preset/"
find "$tree/usr/share/man" -name '*.1' -exec gzip -9n {} +
mkdir -p "$out"
"$program" --tree "$tree" --scripts packaging/rpm/scripts --version "$version" --arch "$(uname -m)" --source-date "$epoch" --out "$out"
