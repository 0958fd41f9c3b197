#!/usr/bin/env bash
# The site is built, every link in it leads somewhere, and its first page shows what a volume does
# today. Installs mdBook into target/tools.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

section "the site"
expect 0 "$root/site/build" "$traceless"
cat out
book=$root/target/site/book
for page in index volume reference/volume repository/security print; do
    check "the page $page" [ -s "$book/$page.html" ]
done
check "the help is in it" grep -q 'traceless volume create' "$book/reference/volume.html"
check "it can be searched" compgen -G "$book/searchindex*.js"
check "it asks no other machine for anything" \
    [ -z "$(grep -lE '(src|<link[^>]* href)="https?:' "$book"/*.html || true)" ]

section "links that lead nowhere are found"
cp --recursive "$book" book
sed -i 's|</main>|<a href="gone.html">a</a><a href="volume.html#gone">b</a></main>|' book/keys.html
expect 1 "$root/site/build" --check book
check "a page" grep -q '^keys.html: gone.html leads nowhere' out
check "an anchor" grep -q '^keys.html: volume.html#gone has no such anchor' out
check "nothing else" [ "$(wc -l <out)" -eq 3 ]

section "the raster"
expect 0 env TRACELESS="$traceless" bash "$root/site/raster.sh"
check "it is what a volume does (site/raster.sh >docs/raster/traces.js)" \
    cmp out "$root/docs/raster/traces.js"
