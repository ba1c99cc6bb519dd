# Functions for scripts that install or download packages of Debian. Sourced.
#
#   VIRTFLEET_DEBIAN_MIRROR  the archive's address; default: the one of this machine's apt

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

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
    local package proof
    while read -r package proof; do
        case $proof in
        command:*) command -v "${proof#command:}" >/dev/null || printf '%s\n' "$package" ;;
        file:*) [ -e "${proof#file:}" ] || printf '%s\n' "$package" ;;
        esac
    done <<<"$1"
}

# Installs packages, as root. Waits while another installation is running. No package starts a
# service: the tests start what they need in namespaces of their own, and a resolver on port 53 of
# this machine would conflict with the machine's own.
install_packages() { # PACKAGE…
    local policy=/usr/sbin/policy-rc.d ours=no status=0 package
    if [ ! -e "$policy" ]; then
        # deb-systemd-invoke and invoke-rc.d call it; 101 means "forbidden".
        # leftovers.sh removes it if this process is killed.
        printf '#!/bin/sh\n# virtfleet, process %s\nexit 101\n' "$$" >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >/dev/null || status=$?
    for package in "$@"; do
        # Do not start it at the next boot either.
        if [ "$package" = unbound ] && command -v deb-systemd-helper >/dev/null; then
            deb-systemd-helper disable unbound.service >/dev/null || true
        fi
    done
    [ "$ours" = no ] || rm -f "$policy"
    return "$status"
}
