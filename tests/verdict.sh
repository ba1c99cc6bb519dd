# The verdict of a run: what ended it, and all that is needed to find out why. Sourced by run.sh, which
# sets `work`, `log`, `phase`, `verb` and writes $work/times and $work/results.
#
# A verdict is written when each phase begins and when the run ends, however it ends. A run that was
# killed leaves the verdict "did not end" with the phase that it was in.
#
#   target/verdict                                             the last run of this clone
#   ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/verdicts/COMMIT  the last run of this commit; with
#                                                              uncommitted changes COMMIT+changes

verdicts="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/verdicts"
KEPT_VERDICTS=50
LAST_LINES=40

# The time in microseconds in which at least one task waited for a CPU, since boot.
cpu_pressure() {
    sed -n 's/^some .*total=//p' /proc/pressure/cpu 2>/dev/null || true
}
pressure_began=$(cpu_pressure)

minutes() { # SECONDS
    printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# One line each: cores, load, pressure, memory, free space.
machine() {
    local pressure folder
    pressure=$(cpu_pressure)
    printf 'cores %s, load %s' "$(nproc)" "$(cut -d ' ' -f 1-3 /proc/loadavg)"
    if [ -n "$pressure_began" ] && [ -n "$pressure" ] && [ "$SECONDS" -gt 0 ]; then
        printf ', a task waited for a CPU in %d %% of the time' $(((pressure - pressure_began) / 10000 / SECONDS))
    fi
    awk '/^MemAvailable:/ { a = $2 } /^MemTotal:/ { t = $2 } END { printf "\n         memory: %.1f of %.1f GB available\n", a / 1e6, t / 1e6 }' /proc/meminfo
    for folder in "$PWD" "${TMPDIR:-/tmp}" "$(dirname "$verdicts")"; do
        [ ! -d "$folder" ] || printf '         free space: %s in %s\n' "$(df --output=avail --block-size=GB "$folder" | tail -n 1 | tr -d ' ')" "$folder"
    done
}

# Prints the verdict. STATE is a sentence.
verdict() { # STATE
    printf 'verdict  %s\n' "$1"
    printf 'commit   %s\n' "$commit"
    printf 'phases  '
    { cat "$work/times" 2>/dev/null; [ -z "$phase" ] || printf '%s\t%d\n' "$phase" $((SECONDS - phase_began)); } |
        while IFS=$'\t' read -r name seconds; do printf ' %s %s;' "$name" "$(minutes "$seconds")"; done
    printf ' in all %s\n' "$(minutes "$SECONDS")"
    printf 'machine  %s\n' "$(machine)"
    [ -s "$work/results" ] || {
        printf '\nthe last %s lines of the output (all of it: %s):\n' "$LAST_LINES" "$log"
        tail -n "$LAST_LINES" "$log" 2>/dev/null | sed 's/^/    /'
        # In an exit trap, `return` alone gives the status of the command that ended the script.
        return 0
    }
    printf 'tests    '
    awk -F '\t' '{ n[$2]++ } END { printf "%d passed, %d unstable, %d failed (a skipped or deferred test counts as passed here)\n",
        n["pass"], n["unstable"], n["fail"] }' "$work/results"
    local state name
    for state in fail unstable; do
        awk -F '\t' -v state="$state" '$2 == state { printf "%-8s %s (%.0f s)\n", state, $3, $4 }' "$work/results"
    done
    for name in $(awk -F '\t' '$2 == "fail" { print $3 }' "$work/results"); do
        printf '\n%s, its last %s lines (all of it: target/failed):\n' "$name" "$LAST_LINES"
        tail -n "$LAST_LINES" "target/failed/$(file_name "$name").log" 2>/dev/null | cut -c 1-2000 | sed 's/^/    /'
    done
    printf '\nslowest tests, in seconds\n'
    slowest
}

# Writes the verdict to all its places. A place that cannot be written does not fail the run.
write_verdict() { # STATE
    mkdir -p target "$verdicts" 2>/dev/null || true
    verdict "$1" >target/verdict.new 2>/dev/null && mv target/verdict.new target/verdict || return 0
    cp target/verdict "$verdicts/${commit/ with /+}" 2>/dev/null || return 0
    # The newest are kept.
    (cd "$verdicts" && ls -t) | tail -n +$((KEPT_VERDICTS + 1)) | while read -r old; do rm -f "${verdicts:?}/$old"; done
}

# The commit of this run, `COMMIT with changes` if files differ from it.
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit="$commit with changes"
