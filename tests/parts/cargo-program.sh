# Programs of other projects that cargo builds into the cache. Sourced by a script that has its own
# `set -euo pipefail`. The file `pins` has their versions, and the hashes of their crates.
#
#   VIRTFLEET_TOOLS  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/tools

# Prints the folder of a program that has the name of its package. One that is already in PATH is
# used as it is. Otherwise `fetch` builds the pinned version into the cache, if it is not there;
# `path` fails.
cargo_program() { # fetch|path NAME FLAGS…
    local verb=$1 name=$2 version hash
    shift 2
    read -r version hash < <(awk -v name="$name" '$2 == "cargo" && $3 == name { print $4, $6 }' "$(dirname "${BASH_SOURCE[0]}")/pins") || {
        echo "$0: tests/parts/pins has no row for $name" >&2
        return 1
    }
    local installed tools="${VIRTFLEET_TOOLS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_TOOLS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/tools}"
    local folder="$tools/$name-$version/bin" log="$tools/$name-$version.log" new="$tools/.new-$name-$version" crate sum
    if installed=$(command -v "$name"); then
        dirname "$installed"
        return 0
    fi
    if [ -x "$folder/$name" ]; then
        printf '%s\n' "$folder"
        return 0
    fi
    if [ "$verb" != fetch ]; then
        echo "$0: $name $version is not installed; $0 fetch builds it" >&2
        return 1
    fi
    mkdir -p "$tools"
    exec 9>"$tools/.lock"
    flock -n 9 || {
        echo "$0: waiting for another build into $tools" >&2
        flock -w 1200 9 || {
            echo "$0: another process has held $tools/.lock for 20 minutes" >&2
            return 1
        }
    }
    if [ ! -x "$folder/$name" ]; then
        echo "$0: building $name $version (a few minutes, once)" >&2
        # Low optimization: these programs are used by people and scripts, and build faster. The
        # project's own flags and target folder do not apply to them.
        rm -rf "$new"
        if ! env -u RUSTFLAGS -u CARGO_TARGET_DIR \
            CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false \
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
            cargo install --quiet --locked "$@" --version "$version" --root "$new" "$name" >"$log" 2>&1; then
            echo "$0: cargo install $name $version failed; the end of $log:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        # cargo has checked the crate against the registry's own hash. --locked holds the crates that
        # it is built from to its lock file.
        for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/"$name-$version.crate"; do
            # There is none if cargo uses a folder of crates in place of the registry.
            [ -e "$crate" ] || continue
            sum=$(sha256sum "$crate" | cut -d ' ' -f 1)
            if [ "$sum" != "$hash" ]; then
                echo "$0: $crate is not accepted: its SHA-256 is $sum, but tests/parts/pins has $hash" >&2
                rm -rf "$new"
                return 1
            fi
        done
        # The test runner is a subcommand of cargo, and has no version of its own.
        if ! "$new/bin/$name" --version >>"$log" 2>&1 && ! "$new/bin/$name" "${name#cargo-}" --version >>"$log" 2>&1; then
            echo "$0: $name $version was built, but does not run; the end of $log:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        rm -rf "$tools/$name-$version"
        mv "$new" "$tools/$name-$version"
    fi
    printf '%s\n' "$folder"
}
