#!/usr/bin/env bash
# Fuzzes the targets, or those that are named, and prints what came of it:  run.sh [TARGET…]
#
# SECONDS_EACH  how long each is played; 60
# Corpora grow in target/fuzz/corpus. What breaks a rule is kept in target/fuzz/found/TARGET, and belongs, once mended, into
# tests/fuzz/regressions/TARGET.
set -euo pipefail
cd "$(dirname "$0")/../.."

each=${SECONDS_EACH:-60}
triple=$(uname -m)-unknown-linux-gnu
work=target/fuzz
roots=tests/fixtures/roots
core=agent/core/src

command -v c++ >/dev/null || {
    echo "fuzz: libFuzzer is C++, and there is no c++; as root: apt-get install g++" >&2
    exit 1
}

# Target → where its words stand (literals of the sources are the dictionary) → files to begin with, as find's -path.
targets="
dbus         $core/dbus                  -
dns-answer   agent/host/src/dns/ask      -
dns-given    $core/dns/given             -
downward     $core/identity/downward.rs  */dev/vd?
identity     $core/identity              tests/fixtures/identity/*
netlink      $core/netlink               -
openmetrics  shared/wire/src/exposition  */minimal/expected.prom
proc-cpu     $core/procfs                $roots/*/proc/[cislp]*
proc-disk    $core/procfs                $roots/*/*[sd][te][adv]*
proc-memory  $core/procfs                $roots/*/proc/[mvbsz]*
proc-net     $core/procfs                $roots/*/proc/net/*
query        agent/service/src/server/query.rs -
queue        collector/queue/src        -
remote-write collector/remote-write/src   -
report       shared/wire/src/report.rs   tests/fixtures/reports/*
resolv       $core/dns/names.rs          -
settings     shared/wire/src/settings    -
textfile     $core/textfile.rs           */expected.prom
unit         $core/identity/unit.rs      */kubelet*
words        shared/wire/src/ids.rs      -
yaml         shared/wire/src/layered     *.y*ml
"

for name; do
    [[ $targets == *$'\n'"$name "* ]] || {
        echo "fuzz: there is no target '$name', only:" $(awk '{ print $1 }' <<<"$targets") >&2
        exit 64
    }
done

# Coverage as libFuzzer wants it, from the stable compiler: counters of edges, and what is compared with what. For an
# explicit target, so that no build script and no macro is instrumented.
flags=(--cfg fuzzing -C passes=sancov-module)
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=(-C "llvm-args=-sanitizer-coverage-$flag")
done
RUSTFLAGS="${flags[*]}" cargo build --quiet --locked --release --manifest-path tests/fuzz/Cargo.toml \
    --target "$triple" --target-dir "$work"
fuzzer=$work/$triple/release/virtfleet-fuzz

play() { # TARGET SOURCES SEEDS
    local target=$1 log=$work/$1.log
    mkdir -p "$work/corpus/$target" "$work/found/$target" "$work/seeds/$target"
    # Small ones only: a long file costs more than it shows.
    [ "$3" = - ] || find tests/fixtures -path "$3" -type f -size -33k -size +0 -print | while read -r file; do
        cp "$file" "$work/seeds/$target/$(sha256sum <"$file" | cut -c1-16)"
    done
    grep -rhoE '"[A-Za-z0-9_./:=<>{}#+ -]{2,24}"' "$2" | sort -u | head -400 >"$work/$target.dict"
    local folders=("$work/corpus/$target" "$work/seeds/$target")
    for folder in "tests/fuzz/seeds/$target" "tests/fuzz/regressions/$target"; do
        [ ! -d "$folder" ] || folders+=("$folder")
    done
    local status=0
    VIRTFLEET_FUZZ=$target nice -n 19 "$fuzzer" -max_total_time="$each" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
        -dict="$work/$target.dict" -artifact_prefix="$work/found/$target/" -print_final_stats=1 -verbosity=1 \
        "${folders[@]}" >"$log" 2>&1 || status=$?
    awk -v target="$target" -v status="$status" '
        match($0, / cov: [0-9]+/) { edges = substr($0, RSTART + 6, RLENGTH - 6) }
        match($0, /^#[0-9]+/) { runs = substr($0, 2, RLENGTH - 1) }
        /number_of_executed_units/ { runs = $2 }
        END { printf "%-12s %12d %8d   %s\n", target, runs, edges, status ? "FOUND" : "nothing" }' "$log"
    [ "$status" = 0 ] || grep -m 3 -E 'panicked at|^ERROR|SUMMARY|bytes held|assertion' "$log" | sed 's/^/             /'
    return "$status"
}

status=0
printf '%-12s %12s %8s   %s\n' target runs edges found
while read -r target sources seeds; do
    [ -n "$target" ] || continue
    [ $# = 0 ] || case " $* " in *" $target "*) ;; *) continue ;; esac
    play "$target" "$sources" "$seeds" || status=1
done <<<"$targets"
exit "$status"
