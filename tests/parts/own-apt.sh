# apt with its own configuration and state. It uses nothing of the machine's apt except the keyring.
# Sourced after debian.sh.
#
# The script that sources it sets `cache` (a folder) and `archive` (Debian's address), and has a
# function `say`.

# Options on the command line override every configuration file of the machine.
own_apt() { # SUITE COMMAND ARGS…
    local suite=$1 world="$cache/.apt/$1" command=$2
    shift 2
    "$command" \
        -o Dir::Etc::sourcelist="$world/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State="$world" -o Dir::State::lists="$world/lists" -o Dir::State::status="$world/status" \
        -o Dir::Cache="$world/cache" -o Dir::Etc::trusted="$debian_keyring" -o Dir::Etc::trustedparts=/dev/null \
        -o APT::Architecture="$(dpkg --print-architecture)" -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::Retries=3 -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false \
        "$@"
}

# Updates a suite's signed package list, at most once per run.
declare -A listed=()
refresh_list() { # SUITE [KIND…]: deb (default), deb-src
    local suite=$1 world="$cache/.apt/$1" kind
    shift
    [ $# -gt 0 ] || set -- deb
    [ -z "${listed[$suite]:-}" ] || return "${listed[$suite]}"
    mkdir -p "$world/lists/partial" "$world/cache/archives/partial"
    : >"$world/status"
    for kind in "$@"; do
        printf '%s [signed-by=%s] %s %s main\n' "$kind" "$debian_keyring" "$archive" "$suite"
    done >"$world/sources.list"
    say "reading the list of Debian $suite (about 10 MB for each of: $*)"
    if own_apt "$suite" apt-get -q update >"$world/update.log" 2>&1 && ! grep -q '^[EW]:' "$world/update.log"; then
        listed[$suite]=0
    else
        say "Debian $suite cannot be read: $(grep -m1 '^[EW]:' "$world/update.log" || tail -n1 "$world/update.log")"
        listed[$suite]=1
    fi
    return "${listed[$suite]}"
}
