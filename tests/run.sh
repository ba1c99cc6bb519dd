#!/usr/bin/env bash
# Runs tests and prints the results:  run.sh check | test | e2e | repeat [TIMES [FILTER]]
#
# check   format, lints, unit tests and architecture tests
# test    check, then everything; verdict.sh says where the verdict is written
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
work=$(mktemp -d "${TMPDIR:-/tmp}/virtfleet-run-$$-XXXXXX")
shipping= # process group of the background build
job=      # process group of the command that runs beside it
loops=()  # background loops that keep the cores busy
# Property tests try the same values in each run, so that two runs of one commit are the same run. The
# soaks choose a seed and print it.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261129}
# CI ends a run after 90 minutes, and a test with a guest may take more than ten.
[ "${CI:-}" != true ] || export VIRTFLEET_NO_GUEST_AFTER=$(($(date +%s) + 72 * 60))
export VIRTFLEET_SKIPS="$work/skips" VIRTFLEET_DEFERRED="$work/deferred"
: >"$VIRTFLEET_SKIPS"
: >"$VIRTFLEET_DEFERRED"
: >"$work/results"

say() { printf '\n== %s\n' "$*"; }

phase='' phase_began=0
. tests/verdict.sh
# The output also goes to a file, which the verdict quotes.
log=target/run.log copier=
if [ "$verb" = test ]; then
    mkdir -p target
    exec > >(tee -i "$log") 2>&1
    copier=$!
fi

at_exit() {
    local status=$? group tries
    trap '' INT TERM
    for group in $shipping $job; do kill -- "-$group" 2>/dev/null || true; done
    [ -z "${loops[*]}" ] || kill "${loops[@]}" 2>/dev/null || true
    if [ "$verb" = test ]; then
        # Everything is in the file when `tee` ends. A program that a test has left may keep the
        # pipe open, so the wait has an end.
        exec >/dev/null 2>&1
        for ((tries = 0; tries < 50; tries++)); do
            kill -0 "$copier" 2>/dev/null || break
            sleep 0.1
        done
        if [ "$status" = 0 ]; then
            write_verdict green
        else
            write_verdict "red, exit code $status, in the phase '${phase:-$last_phase}'"
        fi
    fi
    rm -rf "$work"
}
trap at_exit EXIT
trap 'exit 130' INT TERM

# Ends the current phase and begins the next. The time of each phase is printed at the end.
last_phase=start
begin() { # NAME
    [ -z "$phase" ] || {
        printf '%s\t%d\n' "$phase" $((SECONDS - phase_began)) >>"$work/times"
        last_phase=$phase
    }
    phase=$1 phase_began=$SECONDS
    [ "$verb" != test ] || [ -z "$phase" ] || write_verdict "did not end; it was killed in the phase '$phase', or still runs"
}

# A run that was killed may have left devices, namespaces and mounts, which fail the tests of this one.
[ "$verb" = check ] || tests/parts/leftovers.sh remove

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

# The name of a file for the output of a test.
file_name() { # TEST
    printf '%s' "$1" | tr -c 'A-Za-z0-9_' '-' | tr -s -
}

# Copies the output of each failed test from the output of nextest to FOLDER/TEST SUFFIX.
keep_failures() { # OUTPUT FOLDER SUFFIX
    mkdir -p "$2"
    # A failed test begins with its state and time, and ends at the next line of this form. The
    # summary after the second rule repeats it.
    awk -v folder="$2" -v suffix="$3" '
        /^ *Summary \[/ { exit }
        /^ *[A-Z-]+ +\[[ >]*[0-9.]+s\]/ { file = "" }
        /^ *(FAIL|TIMEOUT|ABORT|SIG[A-Z]+|LEAK-FAIL) +\[/ {
            name = $NF; gsub(/[^A-Za-z0-9_]+/, "-", name); file = folder "/" name suffix
            printf "" >file
        }
        file != "" { print >file }' "$1"
}

# Runs the selected tests. For each test, appends "tier<TAB>pass|fail<TAB>test<TAB>seconds" to
# $work/results. A test's tier is the digit after `tier` in its name; without one it is 1. Keeps the
# output in $work/output, which keep_failures splits.
programs=(--workspace) # where nextest finds the tests
suite() { # NEXTEST-SELECTION…
    local status=0 report=target/nextest/default/junit.xml
    rm -f "$report"
    : >"$work/rows-of-suite"
    cargo nextest run "${programs[@]}" "$@" 2>&1 | tee "$work/output" || status=$?
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
        END { print_last() }' "$report" >"$work/rows-of-suite"
    cat "$work/rows-of-suite" >>"$work/results"
    # The runner replaces its report, and the times of all tests are worth more than the ten slowest.
    [ ! -f "$report" ] || cp "$report" "target/junit-${phase// /-}.xml"
    # The results decide over the run, so they must name a test if one has failed.
    if [ "$status" = 100 ] && ! grep -q "$(printf '\tfail\t')" "$work/rows-of-suite"; then
        say "a test has failed, and $report does not name it"
        status=1
    fi
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

slowest() {
    # awk reads to the end: `head` would end `sort` with SIGPIPE, and `pipefail` this script.
    sort -t $'\t' -k 4,4nr "$work/results" | awk -F '\t' 'NR <= 10 { printf "%8.1f  %s\n", $4, $3 }'
}

table() {
    say 'slowest tests, in seconds'
    slowest
    say 'tiers'
    # One test may report it several times.
    sort -u -o "$VIRTFLEET_SKIPS" "$VIRTFLEET_SKIPS"
    sort -u -o "$VIRTFLEET_DEFERRED" "$VIRTFLEET_DEFERRED"
    awk -F '\t' '
        FILENAME == ARGV[1] { skipped[$1]++; reason[$1] = reason[$1] sprintf("          %s: %s\n", $2, $3); next }
        FILENAME == ARGV[2] { deferred[$1]++; later = later sprintf("  %-18s  %s\n", $3, $2); next }
        $2 == "pass" { pass[$1]++ }
        $2 == "fail" { fail[$1]++ }
        $2 == "unstable" { unstable[$1]++ }
        END {
            what[1] = "tables, fixtures, properties"; what[2] = "devices, namespaces, root"
            what[3] = "real servers"; what[4] = "real guests"
            printf "%-5s %-30s %7s %8s %7s %8s %8s\n", "tier", "", "passed", "unstable", "failed", "skipped", "deferred"
            for (t = 1; t <= 4; t++) {
                # A test that is skipped or deferred returns early, and the runner counts it as passed.
                good = pass[t] - skipped[t] - deferred[t]
                p += good; u += unstable[t]; f += fail[t]; s += skipped[t]; d += deferred[t]
                printf "%-5d %-30s %7d %8d %7d %8d %8d\n%s", t, what[t], good, unstable[t], fail[t], skipped[t], deferred[t], reason[t]
            }
            printf "\n%d passed, %d failed, %d skipped, %d deferred", p + u, f, s, d
            if (u > 0) printf "; %d of the passed ones are unstable: they failed first", u
            printf "\n"
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
    # A run that was killed makes none.
    until [ -d "$work/manual" ]; do
        kill -0 $$ 2>/dev/null || return
        sleep 0.5
    done
    packaging/deb/build.sh target/deb "target/$(uname -m)-unknown-linux-gnu/release/virtfleet-agent" "$work/manual"
}
# Runs a command, or a function, while the static build runs. If the static build fails, ends the
# command at once.
beside_shipping() { # COMMAND…
    local status=0 ended
    if [ -z "$shipping" ]; then
        "$@"
        return
    fi
    set -m
    "$@" &
    job=$!
    set +m
    wait -n -p ended "$job" "$shipping" || status=$?
    if [ "$ended" = "$shipping" ]; then
        shipping= shipped=$status
        if [ "$status" != 0 ]; then
            say 'the static build has failed'
            cat "$work/ship"
            kill -- "-$job" 2>/dev/null || true
        else
            wait "$job" || status=$?
        fi
    fi
    job=
    return "$status"
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
    if [ -n "$shipping" ]; then
        shipped=0
        wait "$shipping" || shipped=$?
        shipping=
    fi
    cat "$work/ship"
    [ "$shipped" != 0 ] || { tests/parts/crates.sh save && tests/parts/agent.sh save; }
    return "$shipped"
}

# Unit tests, architecture tests, samples of the fuzzer, and the server and TLS on sockets.
UNITS=(--lib --test house --test fuzz --test runtime)

# Builds all debug programs and tests in one call. With the tests, cargo unifies the features of
# dev-dependencies. A second call without them would compile the programs and half of their
# dependencies again.
build() {
    say 'programs and tests'
    nice -n 5 cargo build --workspace --bins --test scenarios --test house --test fuzz || return
    target/debug/virtfleet-manual "$work/manual.new" || return
    mv "$work/manual.new" "$work/manual"
    nice -n 5 cargo nextest run --cargo-quiet --workspace --no-run "${UNITS[@]}"
}

lints() {
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

# Five slots more than cores. On two cores that is room for two guests, which take two slots each,
# two tests with clusters and one of the rest; without guests, for seven tests. Each test waits for
# much of its time.
side_by_side() { # NEXTEST-SELECTION…
    suite --test-threads $(($(nproc) + 5)) "$@" || runner_ended $?
}

# Sets the exit status of this run after the runner has failed. 100 means that a test failed; the
# results tell which, and `again` may change them. Anything else is a fault of the runner or the build.
runner_ended() { # STATUS
    [ "$1" = 100 ] || status=$1
}

# Tests of which a failure that comes and goes may be lost data or an open door: never run once more.
NEVER_AGAIN='^(disks_|guest_disks|access|cluster_(access|rights|authority)|network_policies|machine::)|::attacks::'
# More failures than this are no coincidence.
MAX_AGAIN=5

# Runs failed scenarios of the tiers 2 to 4 once more, alone, because a machine that stalls fails tests.
# A test that passes now is unstable: a result of its own, with both outputs in target/unstable.
again() { # ROW, the first row of results to which this applies
    local tests test rows
    tests=$(tail -n "+$1" "$work/results" |
        awk -F '\t' -v never="$NEVER_AGAIN" '$2 == "fail" && $1 >= 2 && $3 !~ never { print $3 }')
    [ -n "$tests" ] || return 0
    if [ "$(wc -l <<<"$tests")" -gt "$MAX_AGAIN" ]; then
        say "more than $MAX_AGAIN tests failed that could run once more: none does"
        return 0
    fi
    begin 'failed tests once more'
    mkdir -p target/unstable
    for test in $tests; do
        say "once more, alone: $test"
        rows=$(wc -l <"$work/results")
        suite --test-threads 1 --test scenarios -E "test(=$test)" || runner_ended $?
        # The first result stands, unless the test has passed now.
        tail -n "+$((rows + 1))" "$work/results" >"$work/second"
        head -n "$rows" "$work/results" >"$work/first"
        if awk -F '\t' -v test="$test" '$3 == test && $2 == "pass" { n++ } END { exit n != 1 }' "$work/second"; then
            awk -F '\t' -v OFS='\t' -v test="$test" '$3 == test { $2 = "unstable" } { print }' "$work/first" >"$work/results"
            mv "target/failed/$(file_name "$test").log" target/unstable/ || true
            cp "$work/output" "target/unstable/$(file_name "$test").again.log"
        else
            cp "$work/first" "$work/results"
        fi
    done
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
        keep_failures "$work/output" "$folder" ".$round.log"
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

# Sets the exit status from the results.
judge() {
    ! grep -q "$(printf '\tfail\t')" "$work/results" || status=1
}

status=0
rm -rf target/failed target/unstable target/junit-*.xml
case $verb in
check)
    begin 'lints and build'
    lints || exit
    begin tests
    say 'unit tests and architecture tests'
    suite "${UNITS[@]}" || runner_ended $?
    judge
    ;;
test)
    start_shipping
    begin 'lints and build'
    beside_shipping lints || exit
    beside_shipping build || exit
    finish_shipping || exit
    begin 'unit tests'
    say 'unit tests and architecture tests'
    suite "${UNITS[@]}" || runner_ended $?
    keep_failures "$work/output" target/failed .log
    begin scenarios
    say 'scenarios'
    row=$(($(wc -l <"$work/results") + 1))
    side_by_side --test scenarios
    keep_failures "$work/output" target/failed .log
    again "$row"
    judge
    ;;
e2e)
    start_shipping
    begin build
    beside_shipping build || exit
    finish_shipping || exit
    begin scenarios
    say 'scenarios'
    side_by_side --lib --test scenarios -E 'test(tier)'
    judge
    ;;
repeat)
    start_shipping
    begin build
    beside_shipping build || exit
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
