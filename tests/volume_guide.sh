#!/usr/bin/env bash
# Runs the commands of docs/volume.md as they stand there, section by section, in one folder: what
# the guide says must work for whoever follows it from the top.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib/common.sh"

mkdir path guide
ln -s "$traceless" path/traceless
PATH=$scratch/path:$PATH
cd guide

# The blocks of commands below the heading $1, one behind the other.
blocks() {
    awk -v heading="## $1" '
        /^## / { here = ($0 == heading) }
        /^```/ { inside = here && $0 == "```sh"; next }
        here && inside
    ' "$root/docs/volume.md"
}

# Does the commands on standard input, as somebody would who types them and looks before going on:
# what runs in the background is ready before the next, and has ended before the end. Lines of tools
# that are not here are left out.
follow() {
    local code=0 tool file=$scratch/commands
    sed --expression '/ volume serve .*&$/ a until [ -S photos.sock ]; do sleep 0.02; done' \
        --expression '/ volume export .*&$/ a until [ -e out/volume ]; do sleep 0.02; done' \
        --expression '/^kill %1/ a wait || true' >"$file"
    check "there are commands" [ -s "$file" ]
    for tool in nbdinfo nbdcopy; do
        if grep --quiet "^$tool " "$file" && ! command -v "$tool" >/dev/null; then
            leave_out "$tool: it is not here"
            sed --in-place "/^$tool / d" "$file"
        fi
    done
    bash -Eeuo pipefail -m "$file" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    if [ "$code" -ne 0 ]; then
        cat "$file" >&2
        tail -n 20 "$scratch/out" "$scratch/err" >&2
        fail "the commands ended with $code"
    fi
    checks=$((checks + 1))
}

# Takes out what needs a mount, where there is none.
where_possible() {
    if can_mount; then
        cat
    else
        grep --invert-match --extended-regexp 'mount|^cp |export|e2fsck'
    fi
}

if can_mount; then
    mounts+=("$scratch/guide/files" "$scratch/guide/out")
else
    leave_out "what is mounted: no root, FUSE or loop device"
fi

section "a first volume"
mkdir --parents "$scratch/doc"
blocks "A first volume" | sed "s|/usr/share/doc/bash|$root/docs|" | where_possible >"$scratch/block"
follow <"$scratch/block"

section "serving"
head --bytes 1M /dev/urandom >photos.raw
blocks "Serving" | sed '/--tcp/,$ d' >"$scratch/block"
follow <"$scratch/block"

if can_mount; then
    section "exporting"
    blocks "Mounting and exporting" >"$scratch/block"
    follow <"$scratch/block"
fi

section "growing"
blocks "Growing" | sed 's/^e2fsck -f/e2fsck -fy/' | where_possible >"$scratch/block"
can_mount || sed --in-place '/^kill/ d' "$scratch/block"
follow <"$scratch/block"
check "it is larger" [ "$(status_of photos.img size_bytes)" = "$((128 << 20))" ]

section "keys"
blocks "Keys" >"$scratch/block"
follow <"$scratch/block"
expect 0 volume status photos.img --key-file key3
expect 3 volume status photos.img --key-file key
expect 3 volume status photos.img --key-file key2
mv key3 key
volume keys add photos.img --key-file key --new-key-file key2 >/dev/null

section "re-encrypting"
blocks "Re-encrypting" >"$scratch/block"
follow <"$scratch/block"

section "the anchor"
rm photos.img
blocks "The anchor" | where_possible >"$scratch/block"
follow <"$scratch/block"
