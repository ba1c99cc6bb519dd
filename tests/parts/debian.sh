# What the scripts share that install from Debian or fetch from it. Sourced.
#
#   VIRTFLEET_DEBIAN_MIRROR  the archive's address; default: where this machine's own apt gets it

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
        echo "this machine's apt knows no Debian archive; set VIRTFLEET_DEBIAN_MIRROR to the address of one" >&2
        return 1
    fi
    printf '%s\n' "$found"
}

# Prints those of a list of packages that are not there. A line of the list is a package and what shows that it is there:
# command:NAME or file:PATH.
missing_packages() { # LIST
    local package proof
    while read -r package proof; do
        case $proof in
        command:*) command -v "${proof#command:}" >/dev/null || printf '%s\n' "$package" ;;
        file:*) [ -e "${proof#file:}" ] || printf '%s\n' "$package" ;;
        esac
    done <<<"$1"
}

# Installs packages, as root; waits while another installation is under way. None of them starts a service: the tests start what they need,
# in namespaces of their own, and a resolver on this machine's port 53 would be in the way of its own.
install_packages() { # PACKAGE…
    local policy=/usr/sbin/policy-rc.d ours=no status=0 package
    if [ ! -e "$policy" ]; then
        # deb-systemd-invoke and invoke-rc.d ask it; 101 means "do not".
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >/dev/null || status=$?
    for package in "$@"; do
        # Nor at the next boot.
        if [ "$package" = unbound ] && command -v deb-systemd-helper >/dev/null; then
            deb-systemd-helper disable unbound.service >/dev/null || true
        fi
    done
    [ "$ours" = no ] || rm -f "$policy"
    return "$status"
}
