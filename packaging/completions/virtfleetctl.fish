
# Names of VMs, infra nodes and user clusters, which the collector knows.
function __virtfleetctl_names
    set -l way
    set -l tokens (commandline -opc)
    set -l i 2
    while test $i -le (count $tokens)
        switch $tokens[$i]
            case --server --cacert --cert --key --token-file --kubeconfig --context --collector-namespace --service-account --audience --via
                set -a way $tokens[$i] $tokens[(math $i + 1)]
                set i (math $i + 1)
            case '--*=*'
                set -a way $tokens[$i]
        end
        set i (math $i + 1)
    end
    $tokens[1] $way --timeout 3s $argv[1] -o name 2>/dev/null
end
complete -c virtfleetctl -n '__fish_seen_subcommand_from vm why history events migrations' -f -a '(__virtfleetctl_names vms)'
complete -c virtfleetctl -n '__fish_seen_subcommand_from host drain' -f -a '(__virtfleetctl_names hosts)'
