#!/usr/bin/env bash
# Writes the documentation as a web site:  build.sh FOLDER
#
# The pages and their order come from docs/README.md; runbooks and decisions from their folders. The
# title of a page is its first heading. Files outside of docs/ to which a page links are copied. Needs
# mdbook in PATH; `make site` brings it.
set -euo pipefail
out=$(realpath -m "${1:?folder of the site}")
cd "$(dirname "$0")/../.."

command -v mdbook >/dev/null || {
    echo "build.sh: mdbook is not in PATH; use \`make site\`, which brings it" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cp -R docs README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE "$work/src/"

# Files that a page links to, such as examples in packaging/.
grep -rhoE '\]\((\.\./)?(packaging|cloud-init|agent|collector|shared|tests)/[^)# ]*' README.md docs --include='*.md' |
    sed -E 's/^\]\((\.\.\/)?//' | sort -u | while read -r file; do
    [ -f "$file" ] || continue
    mkdir -p "$work/src/$(dirname "$file")"
    cp "$file" "$work/src/$file"
done

entry() { # INDENT FILE
    printf '%s- [%s](%s)\n' "$1" "$(sed -n 's/^# //p;T;q' "$2" | tr -d '[]`')" "$2"
}
{
    echo '# Summary'
    entry '' README.md
    echo
    # Each heading of docs/README.md, and each page and folder that it links to, once.
    awk '
        /^## / { print "part " substr($0, 4); next }
        { while (match($0, /\]\([^)#]+[)#]/)) {
              link = substr($0, RSTART + 2, RLENGTH - 3)
              $0 = substr($0, RSTART + RLENGTH)
              if (link !~ /^\.\.|:/ && !seen[link]++) print "page docs/" link
          } }' docs/README.md | while read -r kind what; do
        case $kind:$what in
        part:*) printf '\n# %s\n\n' "$what" ;;
        *:*/)
            name=$(basename "$what")
            printf -- '- [%s]()\n' "${name^}"
            for file in "$what"*.md; do entry '  ' "$file"; done
            ;;
        *:docs/*/*.md) if [ "${what#docs/contributing/}" = "$what" ]; then entry '  ' "$what"; else entry '' "$what"; fi ;;
        *) entry '' "$what" ;;
        esac
    done
    printf '\n# Project\n\n'
    for file in CHANGELOG.md CONTRIBUTING.md SECURITY.md; do entry '' "$file"; done
} >"$work/src/SUMMARY.md"

cat >"$work/book.toml" <<END
[book]
title = "virtfleet"
language = "en"
[build]
create-missing = false
[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
END
mdbook build "$work" --dest-dir "$out"
echo "site: $out/index.html"
