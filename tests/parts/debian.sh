# Where Debian is, for the scripts that fetch from it. Sourced.
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
