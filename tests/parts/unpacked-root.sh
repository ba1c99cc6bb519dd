# The unpacked root of a Debian, for containers that boot it. Sourced by machine-root.sh and
# owners-root.sh, which name the scripts that make it.
#
#   VIRTFLEET_GUESTS  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/guests
#
# A root is cached packed and unpacked, under the hash of the scripts that make it. Nothing
# may write to it.

cache="${VIRTFLEET_GUESTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_GUESTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/guests}"

die() {
    printf 'machines: %s\n' "$*" >&2
    exit 1
}

found() { # TREE
    # image.sh removes files that were not used for a month.
    touch "$1"
    printf '%s\n' "$1"
    exit 0
}

# Prints the folder of the root. Unpacks it if it is missing (as root), and makes it if it is not in
# the cache (network), unless `--cached` is the script's first argument. The first of MAKERS makes
# it: MAKER SUITE TAR.
unpacked_root() { # PREFIX WHAT-IT-HAS SCRIPT MAKERS -- [--cached] SUITE
    local prefix=$1 what=$2 script=$3 makers=() only_cached=no
    shift 3
    while [ "$1" != -- ]; do
        makers+=("$1")
        shift
    done
    shift
    if [ "${1:-}" = --cached ]; then
        only_cached=yes
        shift
    fi
    local suite=${1:-}
    case $suite in
    bookworm | trixie) ;;
    *) die "unknown suite '$suite'; use bookworm or trixie" ;;
    esac

    local key tree packed
    key=$(sha256sum "${makers[@]}" | sha256sum | cut -c1-12)
    tree="$cache/tree-$prefix$suite-$key"
    packed="$cache/root-$prefix$suite-$key.tar.zst"
    [ ! -d "$tree" ] || found "$tree"
    [ "$(id -u)" = 0 ] || die "only root can unpack a root filesystem: files in it belong to many users"
    [ -e "$packed" ] || [ "$only_cached" = no ] || die "the cache has no root with $what of $suite for this checkout; run tests/parts/$script $suite"

    mkdir -p "$cache"
    # The lock of image.sh.
    exec 9>"$cache/.lock"
    flock -n 9 || {
        printf 'machines: waiting for another process that makes images or roots\n' >&2
        flock -w 1200 9 || die "another process has held $cache/.lock for 20 minutes"
    }
    [ ! -d "$tree" ] || found "$tree"
    work=$(mktemp -d "$cache/.new.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    if [ ! -e "$packed" ]; then
        printf 'machines: %s: installing %s into a new root filesystem (a minute or two)\n' "$suite" "$what" >&2
        "./${makers[0]}" "$suite" "$work/root.tar" >&2
        zstd -q -3 -T0 "$work/root.tar" -o "$work/root.tar.zst"
        rm "$work/root.tar"
        mv "$work/root.tar.zst" "$packed"
    fi
    mkdir "$work/tree"
    # tar ends at the archive's end mark. The rest is read too: otherwise SIGPIPE ends zstd now and
    # then, and `pipefail` this script, without a message.
    zstd -dcq "$packed" | { tar -C "$work/tree" --numeric-owner --xattrs --xattrs-include='*' -xpf - && cat >/dev/null; }
    # A rename is atomic: a reader sees the complete tree or nothing.
    mv "$work/tree" "$tree"
    found "$tree"
}
