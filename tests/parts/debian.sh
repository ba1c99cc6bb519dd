# Functions for scripts that install or download packages of Debian. Sourced.
#
#   VIRTFLEET_DEBIAN_MIRROR  the archive's address; default: the one of this machine's apt

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Options of apt-get for the machine's packages: it waits if another installation is running, and an
# update fails if a list cannot be fetched (older versions of apt ignore this option).
patient_apt=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Update::Error-Mode=any)

# Prints the address of Debian's main archive (not the security one).
debian_mirror() {
    if [ -n "${VIRTFLEET_DEBIAN_MIRROR:-}" ]; then
        printf '%s\n' "$VIRTFLEET_DEBIAN_MIRROR"
        return
    fi
    local found
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 2>/dev/null | grep -m1 '/debian/*$' || true)
    if [ -z "$found" ]; then
        echo "apt on this machine has no Debian archive; set VIRTFLEET_DEBIAN_MIRROR to the address of one" >&2
        return 1
    fi
    printf '%s\n' "$found"
}

# Prints the packages of a list that are not installed. A line of the list has a package and a proof
# that it is installed: command:NAME or file:PATH.
missing_packages() { # LIST
    missing_proofs "$1" | cut -d ' ' -f 1
}

# The same with the proof that is missing: "PACKAGE (command NAME)".
missing_proofs() { # LIST
    local package proof
    while read -r package proof; do
        case $proof in
        command:*) command -v "${proof#command:}" >/dev/null || printf '%s (command %s)\n' "$package" "${proof#command:}" ;;
        file:*) [ -e "${proof#file:}" ] || printf '%s (file %s)\n' "$package" "${proof#file:}" ;;
        esac
    done <<<"$1"
}

# Installs packages, as root. Waits while another installation is running. No package starts a
# service: the tests start what they need in namespaces of their own, and a resolver on port 53 of
# this machine would conflict with the machine's own. A package that no source has is reported and
# left out; the caller checks what is missing.
install_packages() { # PACKAGE…
    local policy=/usr/sbin/policy-rc.d ours=no status=0 package available=()
    if [ ! -e "$policy" ]; then
        # deb-systemd-invoke and invoke-rc.d call it; 101 means "forbidden".
        # leftovers.sh removes it if this process is killed.
        printf '#!/bin/sh\n# virtfleet, process %s\nexit 101\n' "$$" >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get "${patient_apt[@]}" update || status=$?
    # apt-get would install nothing if one package did not exist in this release of Debian.
    for package in "$@"; do
        [ "$status" = 0 ] || break
        if [[ "$(LC_ALL=C apt-cache policy "$package")" == *'Candidate: '[^\(]* ]]; then
            available+=("$package")
        else
            printf "setup: this machine's package sources do not have %s\n" "$package" >&2
        fi
    done
    if [ "$status" = 0 ] && [ ${#available[@]} -gt 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "${patient_apt[@]}" install -y --no-install-recommends "${available[@]}" >/dev/null || status=$?
    fi
    for package in "$@"; do
        # Do not start it at the next boot either.
        if [ "$package" = unbound ] && command -v deb-systemd-helper >/dev/null; then
            deb-systemd-helper disable unbound.service >/dev/null || true
        fi
    done
    [ "$ours" = no ] || rm -f "$policy"
    return "$status"
}
