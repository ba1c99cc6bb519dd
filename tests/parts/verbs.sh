# The verbs of a script that provides a part. Sourced at its end, where the functions fetch and path exist, with the script's own
# arguments: `fetch` and `path` are called with what follows them; anything else prints the script's first lines.
case "${1:-}" in
fetch | path)
    verb=$1
    shift
    "$verb" "$@"
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
