# The verbs of a script that provides a part. Sourced at the end of the script, with its arguments.
# The script defines the functions fetch and path, which get the arguments after the verb. Any other
# verb prints the first lines of the script.
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
