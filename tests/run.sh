#!/usr/bin/env bash
# Runs tests and prints the results:  run.sh check | test | e2e | repeat [TIMES [FILTER]]
#
# check   format, lints, unit tests and architecture tests
# test    check, then everything
# e2e     only scenarios of tier 2 and up
# repeat  all scenarios, or those that a filter of nextest selects, TIMES (10) times: builds once,
#         prints the tests that failed at least once, and keeps their output in target/repeat
set -euo pipefail
cd "$(dirname "$0")/.."

verb=${1:?check, test, e2e or repeat}
case $verb in
check | test | e2e | repeat) ;;
*)
    echo "run.sh: unknown verb '$verb'; use check, test, e2e or repeat" >&2
    exit 2
    ;;
esac
repetitions=${2:-10} filter=${3:-}
case $repetitions in
'' | *[!0-9]* | 0*)
    echo "run.sh: TIMES is '$repetitions'; it must be a number of rounds, 1 or more" >&2
    exit 2
    ;;
esac
# A fresh clone builds each crate once. Incremental builds would write 12 GB that no build reads.
[ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0
work=$(mktemp -d)
shipping= # process group of the background build
loops=()  # background loops that keep the cores busy
trap '[ -z "$shipping" ] || kill -- "-$shipping" 2>/dev/null || true
    [ -z "${loops[*]}" ] || kill "${loops[@]}" 2>/dev/null || true
    rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export VIRTFLEET_SKIPS="$work/skips" VIRTFLEET_DEFERRED="$work/deferred"
: >"$VIRTFLEET_SKIPS"
: >"$VIRTFLEET_DEFERRED"
: >"$work/results"

say() { printf '\n== %s\n' "$*"; }

# Ends the current phase and begins the next. The time of each phase is printed at the end.
phase='' phase_began=0
begin() { # NAME
    [ -z "$phase" ] || printf '%s\t%d\n' "$phase" $((SECONDS - phase_began)) >>"$work/times"
    phase=$1 phase_began=$SECONDS
}

if [ "$verb" != check ]; then
    begin set-up
    tests/parts/setup.sh
fi
tests/parts/crates.sh restore

# The same test runner on every machine. It is built into the cache if it is not installed.
runner=$(tests/parts/nextest.sh fetch)
export PATH="$runner:$PATH"

# No test may change the resolver of the machine that runs it, which would break its DNS.
resolver=/etc/resolv.conf
[ ! -e "$resolver" ] || cp "$resolver" "$work/resolv.conf"
resolver_is_untouched() {
    [ -e "$work/resolv.conf" ] || return 0
    ! cmp -s "$resolver" "$work/resolv.conf" || return 0
    say "a test has changed $resolver of this machine: the file is restored, and this run has failed"
    cat "$resolver" || true
    cat "$work/resolv.conf" >"$resolver"
    return 1
}

# Runs the selected tests. For each test, appends "tier<TAB>pass|fail<TAB>test<TAB>seconds" to
# $work/results. A test's tier is the digit after `tier` in its name; without one it is 1.
programs=(--workspace) # where nextest finds the tests
suite() { # NEXTEST-SELECTION…
    local status=0 report=target/nextest/default/junit.xml
    rm -f "$report"
    cargo nextest run "${programs[@]}" "$@" || status=$?
    [ ! -f "$report" ] || awk '
        function print_last() {
            if (name != "")
                printf "%d\t%s\t%s\t%s\n", match(name, /tier[1-4]/) ? substr(name, RSTART + 4, 1) : 1, state, name, time
        }
        function attribute(line, key) {
            return match(line, " " key "=\"[^\"]*\"") ? substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 4) : ""
        }
        { gsub(/></, ">\n<"); count = split($0, lines, "\n")
          for (i = 1; i <= count; i++) {
            line = lines[i]
            if (line ~ /<testcase /) {
                print_last()
                name = attribute(line, "name"); time = attribute(line, "time"); state = "pass"
            }
            if (line ~ /<(failure|error)[ >]/) state = "fail"
          } }
        END { print_last() }' "$report" >>"$work/results"
    return "$status"
}

times() {
    say 'times, in minutes and seconds'
    begin ''
    awk -F '\t' '
        function show(name, seconds) { printf "%-24s %3d:%02d\n", name, seconds / 60, seconds % 60 }
        { show($1, $2); all += $2 }
        END { show("in all", all) }' "$work/times"
}

table() {
    say 'slowest tests, in seconds'
    # awk reads to the end: `head` would end `sort` with SIGPIPE, and `pipefail` this script.
    sort -t $'\t' -k 4,4nr "$work/results" | awk -F '\t' 'NR <= 10 { printf "%8.1f  %s\n", $4, $3 }'
    say 'tiers'
    # One test may report it several times.
    sort -u -o "$VIRTFLEET_SKIPS" "$VIRTFLEET_SKIPS"
    sort -u -o "$VIRTFLEET_DEFERRED" "$VIRTFLEET_DEFERRED"
    awk -F '\t' '
        FILENAME == ARGV[1] { skipped[$1]++; reason[$1] = reason[$1] sprintf("          %s: %s\n", $2, $3); next }
        FILENAME == ARGV[2] { deferred[$1]++; later = later sprintf("  %-18s  %s\n", $3, $2); next }
        $2 == "pass" { pass[$1]++ }
        $2 == "fail" { fail[$1]++ }
        END {
            what[1] = "tables, fixtures, properties"; what[2] = "devices, namespaces, root"
            what[3] = "real servers"; what[4] = "real guests"
            printf "%-5s %-30s %7s %7s %8s %8s\n", "tier", "", "passed", "failed", "skipped", "deferred"
            for (t = 1; t <= 4; t++) {
                # A test that is skipped or deferred returns early, and the runner counts it as passed.
                good = pass[t] - skipped[t] - deferred[t]
                p += good; f += fail[t]; s += skipped[t]; d += deferred[t]
                printf "%-5d %-30s %7d %7d %8d %8d\n%s", t, what[t], good, fail[t], skipped[t], deferred[t], reason[t]
            }
            printf "\n%d passed, %d failed, %d skipped, %d deferred\n", p, f, s, d
            if (later != "") printf "deferred because they take minutes, with the command that runs them:\n%s", later
        }' "$VIRTFLEET_SKIPS" "$VIRTFLEET_DEFERRED" "$work/results"
}

# Prints the Kubernetes release of the tests with real API servers.
kubernetes() {
    local found
    if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
        say "Kubernetes: the API server in KUBEBUILDER_ASSETS ($KUBEBUILDER_ASSETS)"
    elif found=$(tests/parts/kubernetes.sh path 2>/dev/null); then
        found=${found##*/}
        say "Kubernetes: ${found%-*}"
    elif tests/parts/kube-apiserver.sh path >/dev/null 2>&1; then
        say "Kubernetes: 1.20 of Debian, because no later release could be built from Go modules (tests/parts/kubernetes.sh fetch says why)"
    fi
}

# Builds the release agent and its package, which guests and package tests need. The last minutes of
# the build use one core, so it runs at the same time as the checks and the build of the tests, with
# a higher priority (they run with nice).
ship() {
    tests/parts/agent.sh restore || make --silent static || return
    rm -rf target/deb
    # Without debhelper, the tests of the package are skipped, with a message.
    command -v dh >/dev/null || return 0
    # The man pages come from `build`. Without them, the package's script builds the program that
    # writes them alone, with other features, and so compiles most dependencies again.
    until [ -d "$work/manual" ]; do sleep 0.5; done
    packaging/deb/build.sh target/deb "target/$(uname -m)-unknown-linux-gnu/release/virtfleet-agent" "$work/manual"
}
start_shipping() {
    # A process group of its own, so that the exit trap can kill all of it.
    set -m
    ship >"$work/ship" 2>&1 &
    shipping=$!
    set +m
}
finish_shipping() {
    begin 'rest of the static build'
    say 'static agent and its package'
    local status=0
    wait "$shipping" || status=$?
    shipping=
    cat "$work/ship"
    [ "$status" != 0 ] || { tests/parts/crates.sh save && tests/parts/agent.sh save; }
    return "$status"
}

# Builds all debug programs and tests in one call. With the tests, cargo unifies the features of
# dev-dependencies. A second call without them would compile the programs and half of their
# dependencies again.
build() {
    say 'programs and tests'
    nice -n 5 cargo build --workspace --bins --test scenarios --test house --test fuzz || return
    target/debug/virtfleet-manual "$work/manual.new" || return
    mv "$work/manual.new" "$work/manual"
    nice -n 5 cargo nextest run --cargo-quiet --workspace --no-run --lib
}

lints() {
    begin 'lints and build'
    say 'format'
    cargo fmt --all --check || return
    say 'lints'
    nice -n 5 cargo clippy --quiet --workspace --all-targets -- -D warnings || return
    # A build of the whole workspace unifies the features of all crates. The collector is released
    # alone, so each feature that it uses must be in its own manifest. `make static` builds the agent
    # alone.
    say 'the collector alone'
    nice -n 5 cargo check --quiet --package virtfleet-collector
}

# Two tests more than cores: on two cores, one of each group and one of the rest. Each test waits for
# much of its time.
side_by_side() { # NEXTEST-SELECTION…
    suite --test-threads $(($(nproc) + 2)) "$@" || status=$?
}

# Keeps each core busy, as the whole suite does. Without it, a few selected tests would run on an
# idle machine, on which most failures do not occur.
occupy() {
    local core
    for ((core = 0; core < $(nproc); core++)); do
        sh -c 'while kill -0 "$PPID"; do :; done' 2>/dev/null &
        loops+=("$!")
    done
}

# Runs the scenarios repeatedly with the programs that were built before, whatever is edited
# meanwhile. After each round, prints its result. Keeps the output of each failed test.
rounds() {
    local round rows began failed folder=target/repeat selection=()
    rm -rf "$folder"
    mkdir -p "$folder"
    cargo metadata --format-version 1 >"$work/cargo.json" || return
    cargo nextest list --cargo-quiet --workspace --test scenarios --list-type binaries-only --message-format json \
        >"$work/binaries.json" || return
    programs=(--cargo-metadata "$work/cargo.json" --binaries-metadata "$work/binaries.json")
    if [ -n "$filter" ]; then
        selection=(-E "$filter")
        occupy
    fi
    for ((round = 1; round <= repetitions; round++)); do
        began=$SECONDS rows=$(wc -l <"$work/results")
        side_by_side "${selection[@]}" >"$work/round" 2>&1
        tail -n "+$((rows + 1))" "$work/results" >"$work/rows"
        # No result at all: the filter selects nothing or is wrong, or the runner failed.
        if [ ! -s "$work/rows" ]; then
            cat "$work/round" >&2
            return 1
        fi
        # A failed test begins with its state and time. The summary after the second rule repeats it.
        awk -v folder="$folder" -v round="$round" '
            /^ *Summary \[/ { exit }
            /^ *(FAIL|TIMEOUT|ABORT|SIG[A-Z]+|LEAK-FAIL) +\[/ { name = $NF; gsub(/[^A-Za-z0-9_]+/, "-", name); file = folder "/" name "." round ".log" }
            file != "" { print >file }' "$work/round"
        failed=$(awk -F '\t' '$2 == "fail" { n++ } END { print n + 0 }' "$work/rows")
        printf 'round %d of %d: %d of %d tests failed, %d:%02d\n' "$round" "$repetitions" "$failed" "$(wc -l <"$work/rows")" \
            $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
        awk -F '\t' '$2 == "fail" { print "    " $3 }' "$work/rows"
    done
}

# Prints the tests that failed in at least one round. Fails if there is one.
failures() {
    sort -u -o "$VIRTFLEET_SKIPS" "$VIRTFLEET_SKIPS"
    sort -u -o "$VIRTFLEET_DEFERRED" "$VIRTFLEET_DEFERRED"
    awk -F '\t' '
        { runs[$3]++; if ($4 > slowest[$3]) slowest[$3] = $4 }
        $2 == "fail" { failures[$3]++ }
        END { for (name in failures) printf "%d\t%d\t%.1f\t%s\n", failures[name], runs[name], slowest[name], name }' \
        "$work/results" | sort -k 1,1nr -k 4,4 >"$work/failures"
    printf '\n%d tests ran; skipped or deferred in each round: %d\n' "$(cut -f 3 "$work/results" | sort -u | wc -l)" \
        "$(cat "$VIRTFLEET_SKIPS" "$VIRTFLEET_DEFERRED" | wc -l)"
    if [ ! -s "$work/failures" ]; then
        echo 'no test failed'
        return 0
    fi
    say 'tests that failed at least once'
    awk -F '\t' '
        BEGIN { printf "%8s %8s %10s  %s\n", "failures", "runs", "slowest", "test" }
        { printf "%8d %8d %8.1f s  %s\n", $1, $2, $3, $4 }' "$work/failures"
    printf '\nThe output of failed tests, one file for each test and round: %s/\n' "$PWD/target/repeat"
    return 1
}

status=0
case $verb in
check)
    lints || exit
    begin tests
    say 'unit tests and architecture tests'
    suite --lib --test house --test fuzz || status=$?
    ;;
test)
    start_shipping
    lints || exit
    build || exit
    finish_shipping || exit
    begin tests
    say 'unit tests, architecture tests and scenarios'
    side_by_side --lib --test house --test fuzz --test scenarios
    ;;
e2e)
    start_shipping
    begin build
    build || exit
    finish_shipping || exit
    begin tests
    say 'scenarios'
    side_by_side --lib --test scenarios -E 'test(tier)'
    ;;
repeat)
    start_shipping
    begin build
    build || exit
    finish_shipping || exit
    begin tests
    say "scenarios, $repetitions times"
    rounds || status=$?
    ;;
esac
resolver_is_untouched || status=1
if [ "$verb" = repeat ]; then
    failures || status=1
    times
    exit "$status"
fi
[ "$verb" = check ] || kubernetes
table
times
exit "$status"
