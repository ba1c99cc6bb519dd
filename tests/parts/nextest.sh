#!/usr/bin/env bash
# The test runner cargo-nextest. Prints the folder of a `cargo-nextest` program, and builds it first
# if needed.
#
#   nextest.sh fetch   print the folder; build the pinned version into the cache if there is none
#                      (a few minutes)
#   nextest.sh path    print the folder; fail if there is none
#
# A cargo-nextest that is already in PATH is used as it is. The groups and time limits of
# .config/nextest.toml need this runner, so every machine gets the same one. The file `pins` has its
# version and the hash of its crate.
#
#   VIRTFLEET_TOOLS  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/tools
set -euo pipefail

read -r VERSION HASH < <(awk '$1 == "nextest" { print $4, $6 }' "$(dirname "$0")/pins") || {
    echo "nextest: tests/parts/pins has no row for nextest" >&2
    exit 1
}

tools="${VIRTFLEET_TOOLS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_TOOLS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/tools}"
folder="$tools/cargo-nextest-$VERSION/bin"

if installed=$(command -v cargo-nextest); then
    dirname "$installed"
    exit 0
fi
if [ -x "$folder/cargo-nextest" ]; then
    printf '%s\n' "$folder"
    exit 0
fi
if [ "${1:-}" != fetch ]; then
    echo "nextest: cargo-nextest $VERSION is not installed; tests/parts/nextest.sh fetch builds it" >&2
    exit 1
fi

mkdir -p "$tools"
exec 9>"$tools/.lock"
flock -n 9 || {
    echo "nextest: waiting for another build into $tools" >&2
    flock -w 1200 9 || {
        echo "nextest: another process has held $tools/.lock for 20 minutes" >&2
        exit 1
    }
}
if [ ! -x "$folder/cargo-nextest" ]; then
    echo "nextest: building cargo-nextest $VERSION (a few minutes, once)" >&2
    log="$tools/cargo-nextest-$VERSION.log"
    # Without self-update: this script sets the version. Low optimization: the runner only waits for
    # tests. The project's own flags and target folder do not apply to it.
    new="$tools/.new-$VERSION"
    rm -rf "$new"
    if ! env -u RUSTFLAGS -u CARGO_TARGET_DIR \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --quiet --locked --no-default-features --features default-no-update \
        --version "$VERSION" --root "$new" cargo-nextest >"$log" 2>&1; then
        echo "nextest: cargo install cargo-nextest $VERSION failed; the end of $log:" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    # cargo has checked the crate against the registry's own hash. --locked holds the crates that it
    # is built from to its lock file.
    for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/"cargo-nextest-$VERSION.crate"; do
        # There is none if cargo uses a folder of crates in place of the registry.
        [ -e "$crate" ] || continue
        sum=$(sha256sum "$crate" | cut -d ' ' -f 1)
        if [ "$sum" != "$HASH" ]; then
            echo "nextest: $crate is not accepted: its SHA-256 is $sum, but tests/parts/pins has $HASH" >&2
            rm -rf "$new"
            exit 1
        fi
    done
    if ! "$new/bin/cargo-nextest" nextest --version >>"$log" 2>&1; then
        echo "nextest: cargo-nextest $VERSION was built, but does not run; the end of $log:" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    rm -rf "$tools/cargo-nextest-$VERSION"
    mv "$new" "$tools/cargo-nextest-$VERSION"
fi
printf '%s\n' "$folder"
