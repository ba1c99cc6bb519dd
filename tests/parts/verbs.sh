# The verbs of a script that provides a part. Sourced at the end of the script, with its arguments.
# The script defines the functions fetch and path, which get the arguments after the verb. Of a script
# that also defines key, the name of the folder that it makes, the verb fresh succeeds if path prints
# that folder, and fails if there is none or it was made by another version of the script. Any other verb
# prints the first lines of the script.
case "${1:-}" in
fetch | path)
    verb=$1
    shift
    "$verb" "$@"
    ;;
fresh)
    found=$(path 2>/dev/null) && [ "${found##*/}" = "$(key)" ]
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
