#!/usr/bin/env bash
# Types the commands of docs/tutorials as they stand there, each page in a folder of its own.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

WORDS_MAX=400

mkdir path
ln -s "$traceless" path/traceless
PATH=$scratch/path:$PATH

# The blocks of commands of the page $1. What runs in the background is ready before the next
# command.
commands() {
    sed --quiet '/^```sh$/,/^```$/ { /^```/ d; p }' "$root/docs/tutorials/$1.md" |
        sed --regexp-extended --expression 's/.* serve .*--socket (\S*).*&$/&\n@ [ -S \1 ]/' \
            --expression 's/.* gateway .*&$/&\n@ redis-cli -p 6400 ping >\/dev\/null 2>\&1/' |
        sed --expression 's/^@ \(.*\)/until \1; do sleep 0.05; done/' \
            --expression "s/6400/$port/g"
}

# Follows the page $1, whose commands call the tools after it.
follow() {
    local page=$1 tool code=0
    section "$page"
    check "it takes ten minutes" [ "$(wc -w <"$root/docs/tutorials/$page.md")" -le "$WORDS_MAX" ]
    for tool in "${@:2}"; do
        if ! command -v "$tool" >/dev/null; then
            leave_out "$page: $tool is missing"
            return
        fi
    done
    mkdir "$page"
    ln -s "$root/experiments" "$page/experiments"
    commands "$page" >"$page.sh"
    check "there are commands" [ "$(wc -l <"$page.sh")" -ge 5 ]
    (cd "$page" && bash -Eeu -m "../$page.sh") >out 2>err </dev/null || code=$?
    if [ "$code" -ne 0 ]; then
        cat "$page.sh" >&2
        tail -n 20 out err >&2
        fail "$page: the commands ended with $code"
    fi
    checks=$((checks + 1))
}

for page in "$root"/docs/tutorials/*.md; do
    check "$page is followed" \
        grep --quiet "^ *follow $(basename "$page" .md)\b" "$root/tests/tutorials.sh"
done
port=$(python3 -c 'import socket as s; print(s.create_server(("127.0.0.1", 0)).getsockname()[1])')
follow volume nbdcopy
follow cloud redis-cli
follow simulator
if "$traceless" run --resident 8 --memory 1M -- true >/dev/null 2>&1; then
    follow paging
else
    leave_out "paging: no program can be paged here"
fi
