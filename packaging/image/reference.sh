#!/usr/bin/env bash
# Fails unless REGISTRY, which may have a port and folders, and TAG are parts of an image's reference:
#   reference.sh REGISTRY TAG
set -euo pipefail
export LC_ALL=C
registry=${1:?registry, such as registry.example.org} tag=${2:?tag, such as 0.1.0}

die() {
    echo "reference: $*" >&2
    exit 1
}
case $registry in
*://*) die "REGISTRY '$registry' is a URL; name the host alone, such as registry.example.org" ;;
/* | */ | *[!][A-Za-z0-9.:/_-]*)
    die "REGISTRY '$registry' is not one; use letters, digits and . : / _ - as in registry.example.org:5000/team"
    ;;
esac
case $tag in
[.-]* | *[!A-Za-z0-9._-]*) die "TAG '$tag' is not one; use letters, digits and . _ -, such as 0.1.0" ;;
esac
