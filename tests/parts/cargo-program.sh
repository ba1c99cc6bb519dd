# Programs of other projects that cargo builds into the cache. Sourced by a script that has its own
# `set -euo pipefail`.
#
#   VIRTFLEET_TOOLS  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/tools

# Prints the folder of a program that has the name of its package. One that is already in PATH is
# used as it is. Otherwise `fetch` builds this version into the cache, if it is not there; `path`
# fails.
cargo_program() { # fetch|path NAME VERSION FLAGS…
    local verb=$1 name=$2 version=$3
    shift 3
    local installed tools="${VIRTFLEET_TOOLS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_TOOLS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/tools}"
    local folder="$tools/$name-$version/bin" log="$tools/$name-$version.log"
    if installed=$(command -v "$name"); then
        dirname "$installed"
        return 0
    fi
    if [ -x "$folder/$name" ]; then
        printf '%s\n' "$folder"
        return 0
    fi
    if [ "$verb" != fetch ]; then
        echo "$name $version is not installed; $0 fetch builds it" >&2
        return 1
    fi
    mkdir -p "$tools"
    exec 9>"$tools/.lock"
    flock 9
    if [ ! -x "$folder/$name" ]; then
        echo "building $name $version (a few minutes, once)" >&2
        # Low optimization: these programs are used by people and scripts, and build faster. The
        # project's own flags and target folder do not apply to them.
        if ! env -u RUSTFLAGS -u CARGO_TARGET_DIR \
            CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false \
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
            cargo install --quiet --locked "$@" --version "$version" --root "$tools/$name-$version" "$name" >"$log" 2>&1; then
            echo "cargo install $name $version failed; the end of $log:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
    fi
    printf '%s\n' "$folder"
}
