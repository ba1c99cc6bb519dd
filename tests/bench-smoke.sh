#!/usr/bin/env bash
# Runs each benchmark in its smallest form, so that one that does not work any more is noticed.
# Prints a line for each: its name, its seconds, and whether it ended well. Fails if one did not.
# The figures of this run mean nothing: it uses the debug programs, four at a time.
# `make bench-smoke` builds them.
#
# What this machine lacks (a peer, an API server, a guest) is skipped with the reason. No network.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=175 # seconds for all, after which those that still run are ended and have failed
programs=${CARGO_TARGET_DIR:-target}/debug

# Target of the Makefile, what it needs, its arguments. Those that take longest begin first.
table='
bench-labels   kubernetes    --vmis 20 --hosts 4 --clusters 1 --moves 10 --relabels 2 --steady 2 --interval 3 --quiet 3 --large 0
bench-clusters kubernetes    --clusters 20 --nodes 2 --steady 1
bench-enrol    -             --guests 20 --interval 2 --added 1 --starts 1 --signatures 50 --lead 15
bench-mla      vmagent       --guests 10 --pods 2 --interval 2 --intervals 1 --outage 0
bench-dns      machine       1
bench-guest    guest         --boots 0 --restores 1 --scrapes 0
bench-hostile  -             --guests 20 --hostile 15 --seconds 5 --interval 2
bench-page     web           --vms 50 --vms-per-host 10 --requests 5
bench-agent    node-exporter --scrapes 20 --rest 1 --growth 0
bench-fleet    vmagent       --guests 10 --interval 2 --intervals 3
bench-proof    root          --seconds 1 --disks 1
bench-disks    root          --proof 1
bench-parsers  -
bench-queue    -             --records 50 --bytes 1000 --sync 10 --rounds 1
bench-mla-core -             --vms 2 --pages 2
bench-health   -             --vms 100 --runs 1
bench-index    -             --clusters 5 --vms 100 --events 5
bench-install  scenario
'

work=$(mktemp -d "${TMPDIR:-/tmp}/virtfleet-smoke-XXXXXX")
at_exit() {
    local file
    trap '' INT TERM
    touch "$work/stop" # no other one begins
    # timeout(1) passes the signal to the benchmark and all that it has started.
    for file in "$work"/*.pid; do [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap at_exit EXIT
trap 'exit 130' INT TERM

# Fails, with the reason on standard error, if this machine lacks what a benchmark needs.
has() { # NEED
    case $1 in
    -) ;;
    node-exporter | vmagent) tests/parts/parts.sh path "$1" ;;
    kubernetes) tests/parts/kubernetes.sh path 2>/dev/null || tests/parts/kube-apiserver.sh path ;;
    web) tests/parts/web.sh path ;;
    machine) tests/parts/machine-root.sh --cached trixie ;;
    guest)
        # Without a snapshot, a guest boots for minutes.
        compgen -G "$(tests/guests/image.sh --path trixie)/golden/booted-*" || {
            echo 'no guest has been booted yet; `make test` does' >&2
            return 1
        }
        ;;
    root) [ "$(id -u)" = 0 ] || {
        echo 'needs root' >&2
        return 1
    } ;;
    scenario)
        echo '`make test` runs it: the scenario tier3_install_walk' >&2
        return 1
        ;;
    esac
}

run() { # TARGET NEED ARGUMENTS…
    local name=$1 need=$2 reason began=$SECONDS status=0 left
    shift 2
    if ! reason=$(has "$need" 2>&1 >/dev/null); then
        printf '%-14s    - s  skipped: %s\n' "$name" "${reason##*$'\n'}"
        touch "$work/$name.done"
        return
    fi
    [ ! -e "$work/stop" ] || return 0
    left=$((limit - SECONDS))
    timeout --kill-after=3 "$((left > 0 ? left : 1))" "$programs/$name" "$@" >"$work/$name.log" 2>&1 </dev/null &
    echo $! >"$work/$name.pid"
    [ ! -e "$work/stop" ] || kill $!
    wait $! || status=$?
    rm "$work/$name.pid"
    case $status in
    0) reason=ok ;;
    124 | 137) reason="failed: it had not ended after $limit s" ;;
    *) reason="failed with exit code $status" ;;
    esac
    if [ "$status" != 0 ]; then
        touch "$work/failed"
        [ ! -s "$work/$name.log" ] || reason+=$'\n'$(tail -n 15 "$work/$name.log" | sed 's/^/    /')
    fi
    printf '%-14s %4d s  %s\n' "$name" $((SECONDS - began)) "$reason"
    touch "$work/$name.done"
}

running=0
while read -r name need arguments; do
    [ -n "$name" ] || continue
    if [ "$running" = 4 ]; then
        wait -n
        running=3
    fi
    run "$name" "$need" $arguments &
    running=$((running + 1))
done <<<"$table"
wait
# A part that was killed has no line.
while read -r name _; do
    [ -z "$name" ] || [ -e "$work/$name.done" ] || {
        printf '%-14s    - s  failed: ended without a result\n' "$name"
        touch "$work/failed"
    }
done <<<"$table"
printf 'in all %8d s, with the programs of %s\n' "$SECONDS" "$programs"
[ ! -e "$work/failed" ]
