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

# Installs packages, as root; waits while another installation is under way.
install_packages() { # PACKAGE…
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >/dev/null
}
