
# Names of VMs, infra nodes and user clusters, which the collector knows. The generated function
# above completes the rest.
_virtfleetctl_names() {
    local line="${COMP_LINE:0:COMP_POINT}" current="" what="" i
    local -a words=() way=()
    # Not COMP_WORDS: bash splits URLs at their colons.
    read -ra words <<<"$line"
    if [[ $line != *[[:space:]] ]]; then
        current=${words[-1]}
        unset 'words[-1]'
    fi
    for ((i = 1; i < ${#words[@]}; i++)); do
        case ${words[i]} in
            --server | --cacert | --cert | --key | --token-file | --kubeconfig | --context | \
                --collector-namespace | --service-account | --audience | --via)
                way+=("${words[i]}" "${words[i + 1]-}")
                i=$((i + 1))
                ;;
            --*=*) way+=("${words[i]}") ;;
            -*) ;;
            vm | why | history | events | migrations) what=${what:-vms} ;;
            host | drain) what=${what:-hosts} ;;
            *) what=${what:-none} ;;
        esac
    done
    if [[ -z $what || $what == none || $current == -* || ${words[-1]} == -* ]]; then
        return 1
    fi
    local names
    names=$("${words[0]}" "${way[@]}" --timeout 3s "$what" -o name 2>/dev/null) || return 1
    # A VM may also be named without its namespace.
    if [[ $what == vms && -n $current && $current != */* ]]; then
        names+=$'\n'$(sed 's|.*/||' <<<"$names")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
    ((${#COMPREPLY[@]}))
}

_virtfleetctl_with_names() {
    _virtfleetctl_names || _virtfleetctl "$@"
}

complete -F _virtfleetctl_with_names -o bashdefault -o default virtfleetctl
