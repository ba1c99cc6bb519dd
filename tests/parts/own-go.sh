# A Go toolchain for builds and downloads of Go modules. Sourced after own-apt.sh.
#
# The script that sources it sets `here` (this folder), `cache` and `work` (folders), and has a
# function `say`; for `module` also `pinned`, which prints the module, version and sum of its rows.

# Puts a Go into PATH that is new enough to download the toolchain that go.mod names.
provide_go() {
    local found suite package
    if found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) &&
        printf '%s\n' 1.21 "${found#go}" | sort -V -C && usable_go; then
        return
    fi
    if [ ! -r "$debian_keyring" ]; then
        say "there is no Go 1.21 or newer in PATH, and $debian_keyring is missing; apt-get install debian-archive-keyring"
        return 1
    fi
    archive=$(debian_mirror) || return 1
    # Go from trixie downloads the toolchain that go.mod names, with which the programs are known to
    # build.
    for suite in trixie sid; do
        refresh_list "$suite" || continue
        # golang-go depends on the release's own package, golang-1.NN-go.
        package=$(own_apt "$suite" apt-cache depends --important golang-go | awk '$1 == "Depends:" && $2 ~ /^golang-1\.[0-9]+-go$/ { print $2; exit }')
        [ -n "$package" ] || continue
        say "fetching $package of Debian $suite"
        mkdir -p "$work/download" "$work/go"
        (cd "$work/download" && own_apt "$suite" apt-get -q download "$package" "${package%-go}-src") >"$work/download.log" 2>&1 || {
            say "cannot download $package of Debian $suite: $(grep -m1 '^E:' "$work/download.log" || tail -n1 "$work/download.log")"
            continue
        }
        for package in "$work"/download/*.deb; do dpkg -x "$package" "$work/go"; done
        unpacked_go "$work"/go/usr/lib/go-1.* && usable_go && return
        rm -rf "$work/download" "$work/go"
    done
    say "no usable Go was found: it must be 1.21 or newer, with $(sed -n 's/^go /Go /p' "$here/kubernetes/go.mod") from the module proxy"
    return 1
}

# Whether the Go in PATH is as new as go.mod requires, or can download one that is.
usable_go() {
    (cd "$here/kubernetes" && GOPATH="$work/gopath" GOFLAGS=-modcacherw GOTOOLCHAIN=auto go version) >/dev/null 2>&1
}

# Debian's GOROOT has links to absolute paths. They are redirected to the folder of the unpacked
# package.
unpacked_go() { # GOROOT
    local link target
    while read -r link; do
        target=$(readlink "$link")
        case $target in
        /*) ln -sfn "$work/go$target" "$link" ;;
        esac
    done < <(find "$1" -maxdepth 2 -type l)
    export GOROOT="$1" PATH="$1/bin:$PATH"
    say "using $(GOTOOLCHAIN=local go version)"
}

# Prints the folder of a module's files, if their sum is the pinned one.
module() { # MODULE@VERSION
    local answer sum pin
    answer=$(cd "$work" && go mod download -json "$1" 2>&1) || {
        say "cannot download $1: $(sed -n 's/^\s*"Error": "\(.*\)".*/\1/p' <<<"$answer")"
        return 1
    }
    sum=$(sed -n 's/^\s*"Sum": "\(.*\)".*/\1/p' <<<"$answer")
    pin=$(pinned | awk -v module="${1%@*}" -v version="${1#*@}" '$1 == module && $2 == version { print $3 }')
    if [ "$sum" != "$pin" ]; then
        say "$1 has the sum $sum, but tests/parts/pins has ${pin:-none}; it is not used"
        return 1
    fi
    sed -n 's/^\s*"Dir": "\(.*\)".*/\1/p' <<<"$answer"
}
