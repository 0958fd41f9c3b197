#!/usr/bin/env bash
# The contract of the command line that scripts rely on: flags, exit codes, JSON, files and sockets.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

head --bytes 48 /dev/urandom >other-key
head --bytes 31 /dev/urandom >short-key

make() {
    expect 0 volume create "$1" --force --key-file key "${@:2}"
}

# With another key than the default, or standard input from a file: for `expect`.
with_key() {
    volume "$1" "$2" --key-file "$3" "${@:4}"
}

with_input() {
    "${@:2}" <"$1"
}

has_bytes() {
    [ "$(stat --format %s "$1")" -eq "$2" ]
}

section "create: sizes, options, what is there already"
make image --size 1M --json
expect_json traceless.volume.create.v1 scheme blocks block_len refresh image_bytes generation
check "permissions of the image" [ "$(stat --format %a image)" = 600 ]
check "no holes in the image" \
    [ $(($(stat --format '%b * %B' image))) -ge "$(stat --format %s image)" ]
expect 4 volume create image --size 1M --key-file key
check "it still opens" [ "$(status_of image blocks)" = 256 ]
expect 4 volume create nowhere/image --size 1M --key-file key
expect 4 volume create . --size 1M --key-file key
for size in 0 -1 1.5M 1X '' 99999999999T 16777216T; do
    expect 2 volume create new --size "$size" --key-file key
done
for refresh in 0 -1 x 1/0 2000 ''; do
    expect 2 volume create new --size 1M --refresh "$refresh" --key-file key
done
expect 2 volume create new --size 1M --scheme none --key-file key
expect 2 volume create new --size 1M --scheme plain --refresh 2 --key-file key
expect 2 volume create new --size 1M --scheme plain --map-entries pointers --key-file key
expect 2 volume create new --key-file key
expect 2 volume create new --size 1M --key-file key --bogus
expect 2 volume
expect 0 volume --help
expect 0 "$traceless" --version
check "a refused creation leaves no file" [ ! -e new ]
# One block is fewer than its refreshes.
expect 2 volume create new --size 1 --key-file key
for pair in 4097:2 9k:3 1M:256 16MiB:4096; do
    make new --size "${pair%:*}"
    check "blocks of --size ${pair%:*}" [ "$(status_of new blocks)" = "${pair#*:}" ]
done
for pair in 3:3 1/3:1/3 2.5:5/2 0.5:1/2 6/4:3/2; do
    make new --size 1M --refresh "${pair%:*}"
    check "refresh of ${pair%:*}" [ "$(status_of new refresh)" = "${pair#*:}" ]
done
check "a map of counts" [ "$(status_of new map_entries)" = counts ]
rm new

section "keys: wrong, short, missing, from standard input, typed"
for verb in status check "keys list"; do
    read -ra words <<<"$verb"
    expect 3 volume "${words[@]}" image --key-file other-key
done
expect 3 volume serve image --key-file other-key --socket socket
expect 3 volume create new --size 1M --key-file short-key
expect 3 volume create new --size 1M --key-file no-such-key
expect 3 volume status image --key-file short-key
expect 3 volume status image --key-file /dev/null
expect 0 with_input key volume status image --key-file -
expect 3 with_input other-key volume status image --key-file -
expect 3 with_input /dev/null volume status image --key-file -
echo "a passphrase" >typed
printf '\n' >nothing
expect 0 with_input typed volume create new --size 1M --kdf-memory 8M --kdf-time 1
expect 0 with_input typed volume status new
expect 3 with_input nothing volume status new
expect 3 volume status new --key-file key
rm new

section "what is no volume, or not a whole one"
: >empty
head --bytes 1M /dev/urandom >random
head --bytes "$(($(stat --format %s image) - 4096))" image >truncated
head --bytes 100k image >beheaded
mkdir folder
for pair in missing:4 empty:4 random:4 folder:4 truncated:1 beheaded:1; do
    expect "${pair#*:}" volume status "${pair%:*}" --key-file key
    expect "${pair#*:}" volume check "${pair%:*}" --key-file key
    expect "${pair#*:}" volume serve "${pair%:*}" --key-file key --socket socket
done
check "nothing was made" [ ! -e missing ]
check "nothing was changed" has_bytes empty 0

section "status, check and keys: JSON"
expect 0 volume status image --key-file key --json
expect_json traceless.volume.status.v1 scheme blocks block_len refresh generation image_bytes \
    writes write_amplification key_slots map map_bytes levels flushes bucket fanout cadence \
    space_factor discards
check "write amplification, with headers and the discard map of 257 blocks" \
    [ "$(status_of image write_amplification)" = 2.031341552734375 ]
check "image_bytes" has_bytes image "$(status_of image image_bytes)"
expect 0 volume check image --key-file key --json
expect_json traceless.volume.check.v1 sound writes damaged places
expect 0 volume keys list image --key-file key --json
expect_json traceless.volume.keys.v1 key_slots
make plain --size 1M --scheme plain
expect 0 volume status plain --key-file key --json
expect_json traceless.volume.status.v1 scheme blocks block_len refresh generation image_bytes \
    writes write_amplification key_slots

section "doors that are refused: nothing was written"
before=$(status_of image generation)
expect 2 volume serve image --key-file key --tcp 0.0.0.0:1
expect 2 volume serve image --key-file key --socket "$(printf 'x%.0s' {1..200})"
expect 2 volume serve image --key-file key --socket no-such-folder/socket
expect 2 volume serve image --key-file key --socket folder
expect 2 volume serve image --key-file key --socket socket --tls-certificate key --tls-key key
expect 2 volume serve image --key-file key
if (: <>/dev/fuse) 2>/dev/null; then
    for place in no-such-folder key; do
        code=0
        volume export image "$place" --key-file key >out 2>err || code=$?
        check "export at $place is refused" [ "$code" -ne 0 ]
        code=0
        volume mount image "$place" --key-file key >out 2>err || code=$?
        check "mount at $place is refused" [ "$code" -ne 0 ]
    done
else
    leave_out "export and mount at places where nothing can be: no FUSE"
fi
check "the generation is as before" [ "$(status_of image generation)" = "$before" ]
check "and it is closed" [ "$(status_of image clean)" = true ]

section "failures as JSON"
failure() {
    tail --lines 1 err >out
    expect_json traceless.failure.v1 exit_code kind error
    check "$1, $2" [ "$(python3 "$lib/fields.py" --get kind <out)" = "$2" ]
}
expect 3 volume status image --key-file other-key --json
check "nothing on standard output" [ ! -s out ]
failure status key
expect 4 volume check missing --key-file key --json
failure check device
expect 4 volume create image --size 1M --key-file key --json
failure create device
expect 3 volume keys list image --key-file other-key --json
failure "keys list" key
expect 2 volume status --json
failure "wrong use" usage
expect 2 "$traceless" audit compare missing missing --json
failure audit usage

section "a header backup is never overwritten; a damaged version is damage"
expect 0 volume header backup image --key-file key --file kept-backup
expect 4 volume header backup image --key-file key --file kept-backup
check "no option is named that there is not" [ -z "$(sed -n '/--force/ p' err)" ]
cp image flipped
printf '\x03' | dd of=flipped bs=1 seek=8 conv=notrunc status=none
expect 1 volume status flipped --key-file key
expect 4 volume status flipped --key-file other-key
rm flipped kept-backup

section "completions and manual pages"
for shell in bash zsh fish; do
    expect 0 "$traceless" completions "$shell"
    check "$shell completes volume" grep --quiet volume out
done
expect 0 "$traceless" man manual/man1
check "a page of a subcommand" [ -s manual/man1/traceless-volume-create.1 ]
expect 2 "$traceless" completions nosuchshell

section "while it is served: exclusive, but for status"
serve image
check "permissions of the socket" [ "$(stat --format %a socket)" = 600 ]
nbd write 0 1
expect 5 volume serve image --key-file key --socket second
check "the second leaves no socket" [ ! -e second ]
expect 5 volume serve image --key-file key --socket second --read-only
expect 5 volume check image --key-file key
expect 5 volume keys add image --key-file key --new-key-file other-key
expect 5 volume keys change image --key-file key --new-key-file other-key
expect 5 volume keys remove image --key-file key
expect 5 volume create image --force --size 1M --key-file key
expect 0 volume header backup image --key-file key --file served-backup
expect 5 volume header restore image --key-file key --file served-backup
expect 0 volume status image --key-file key --json
check "in use" [ "$(status_of image in_use)" = true ]
check "not closed yet" [ "$(status_of image clean)" = false ]
nbd verify 0 1
stop_server

section "SIGTERM closes; dead sockets are replaced, living ones are not"
check "the socket is gone" [ ! -e socket ]
check "closed" [ "$(status_of image clean)" = true ]
check "free" [ "$(status_of image in_use)" = false ]
check "one write" [ "$(status_of image writes)" = 1 ]
serve image
kill_server
check "a killed server leaves its socket" [ -S socket ]
check "not closed" [ "$(status_of image clean)" = false ]
serve image
nbd verify 0 1
expect 5 volume serve plain --key-file key --socket socket
nbd verify 0 1
stop_server
echo mine >file
expect 2 volume serve image --key-file key --socket file
check "a file is not taken for a socket" [ "$(cat file)" = mine ]
expect 2 volume serve image --key-file key
expect 2 volume serve image --key-file key --tcp 0.0.0.0:0
serve image
kill -INT "$server"
wait "$server" || fail "SIGINT must close as well"
check "closed by SIGINT" [ "$(status_of image clean)" = true ]

section "reading only: nothing is written, not even after a crash"
serve image
nbd write 8192 2
nbd flush
kill_server
before=$(sha256_of image)
serve image --read-only
nbd verify 8192 2
nbd write-error 0
nbd flush
expect 0 nbdinfo --json "nbd+unix:///?socket=socket"
check "told to clients" grep -q '"is_read_only": true' out
stop_server
check "the image is as it was" [ "$(sha256_of image)" = "$before" ]
expect 0 volume check image --key-file key
check "after check too" [ "$(sha256_of image)" = "$before" ]
if [ "$(id -u)" -eq 0 ]; then
    mkdir locked
    cp image locked
    mount --bind locked locked
    mounts+=("$scratch/locked")
    mount -o remount,bind,ro locked
    expect 4 volume serve locked/image --key-file key --socket socket
    expect 4 volume keys add locked/image --key-file key --new-key-file other-key
    expect 0 volume status locked/image --key-file key
    expect 0 volume check locked/image --key-file key
    serve locked/image --read-only
    nbd verify 8192 2
    stop_server
    umount locked
else
    chmod a-w image
    expect 4 volume serve image --key-file key --socket socket
    expect 0 volume check image --key-file key
    chmod u+w image
fi

section "a full disk"
if [ "$(id -u)" -eq 0 ]; then
    mkdir full
    mount -t tmpfs -o size=4M none full
    mounts+=("$scratch/full")
    expect 4 volume create full/image --size 64M --key-file key
    check "no file is left" [ -z "$(ls -A full)" ]
    expect 0 volume create full/image --size 1M --unfilled --key-file key --json
    # It takes more than twice its size: some of it can be written, and all of that stays.
    head --bytes 3M /dev/zero >full/ballast 2>/dev/null || true
    serve full/image
    nbd write 0 1
    nbd flush
    python3 - "$lib" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import nbd
client = nbd.Client("socket")
refused = False
for _ in range(4):
    for block in range(1, 256):
        try:
            client.write(block * 4096, nbd.pattern(block, 4096))
            client.flush()
        except nbd.Refused:
            refused = True
if not refused:
    sys.exit("the disk was never full")
END
    kill -TERM "$server"
    wait "$server" || true
    rm full/ballast
    serve full/image
    nbd verify 0 1
    stop_server
    expect 0 volume check full/image --key-file key
    umount full
else
    leave_out "a full disk: it takes root to make one"
fi

section "a map of pointers, in memory and inside, through a kill"
for map in memory disk; do
    make pointers --size 4M --map "$map" --map-entries pointers
    check "status tells, map on $map" [ "$(status_of pointers map_entries)" = pointers ]
    serve pointers
    for offset in 0 4096 1048576; do
        nbd write "$offset" "$offset"
    done
    nbd flush
    kill_server
    serve pointers
    for offset in 0 4096 1048576; do
        nbd verify "$offset" "$offset"
    done
    stop_server
    expect 0 volume check pointers --key-file key
done
rm pointers

# A volume of so many bytes, made with these options: used at both ends and between, and killed.
use_far_apart() {
    local bytes=$1 end=$(($1 - 4096)) offset
    shift
    expect 0 volume create huge --size "$bytes" --unfilled --key-file key --json "$@"
    serve huge
    check "its size" [ "$(nbd size)" -eq "$bytes" ]
    for offset in 0 $((bytes / 2)) "$end"; do
        nbd write "$offset" "$offset"
    done
    nbd flush
    kill_server
    serve huge
    for offset in 0 $((bytes / 2)) "$end"; do
        nbd verify "$offset" "$offset"
    done
    nbd write "$end" 7
    stop_server
    serve huge --read-only
    nbd verify "$end" 7
    nbd read-error "$bytes"
    stop_server
}

section "10 TiB, refreshed 3 blocks a write, the map inside"
use_far_apart $((10 << 40)) --refresh 3
expect 0 volume status huge --key-file key --json
check "the map lies on the disk" [ "$(python3 "$lib/fields.py" --get map <out)" = disk ]
rm huge

section "100 GiB of sq"
for map in memory disk; do
    use_far_apart $((100 << 30)) --scheme sq --map "$map"
    rm huge
done

section "requests that are no whole blocks"
make odd --size 5000
serve odd
check "rounded up" [ "$(nbd size)" -eq 8192 ]
nbd write 512 1 512
nbd write 3584 2 1024
nbd verify 512 1 512
nbd verify 3584 2 1024
nbd write-error 8192 512
nbd read-error 4096 8192
nbd verify 512 1 512
stop_server

section "the anchor: older images, forks and lost writes are refused"
make image --size 1M --anchor anchor
# Writes a block through a server that keeps the anchor, and flushes.
step_with_anchor() {
    serve image --anchor anchor
    nbd write 4096 "$1"
    nbd flush
    stop_server
}
step_with_anchor 1
cp image older
step_with_anchor 2
cp image newer
cp older image
expect 1 volume serve image --key-file key --socket socket --anchor anchor
expect 1 volume check image --key-file key --anchor anchor
expect 0 volume check image --key-file key
# As many openings, another way.
serve image
nbd write 4096 3
stop_server
expect 1 volume serve image --key-file key --socket socket --anchor anchor
cp newer image
serve image --anchor anchor
cp image opened
nbd write 4096 4
nbd flush
kill_server
cp opened image
expect 1 volume serve image --key-file key --socket socket --anchor anchor
cp newer image
make other --size 1M
expect 4 volume serve other --key-file key --socket socket --anchor anchor
expect 4 volume serve image --key-file key --socket socket --anchor missing
expect 4 volume create new --size 1M --key-file key --anchor anchor
check "a creation without its anchor leaves no file" [ ! -e new ]

section "keys: add, change, remove, list; the header's backup"
make image --size 1M
expect 0 volume header backup image --key-file key --file backup
expect 4 volume header backup image --key-file key --file backup
expect 3 volume header backup image --key-file other-key --file backup-2
expect 3 volume keys remove image --key-file key
expect 0 volume keys add image --key-file key --new-key-file other-key
expect 0 volume status image --key-file other-key
expect 3 volume keys remove image --key-file key --slot 5
expect 3 volume keys add image --key-file key --new-key-file short-key
expect 0 volume keys list image --key-file key
check "two keys" [ "$(wc -l <out)" -eq 2 ]
head --bytes 32 /dev/urandom >third-key
expect 0 volume keys change image --key-file key --new-key-file third-key
check "a warning about copies" grep -qi 'older copies' out
expect 3 volume status image --key-file key
expect 0 volume keys remove image --key-file third-key --slot 1
expect 3 volume status image --key-file other-key
for i in 2 3 4 5 6 7 8; do
    head --bytes 32 /dev/urandom >"key-$i"
    expect 0 volume keys add image --key-file third-key --new-key-file "key-$i"
done
expect 3 volume keys add image --key-file third-key --new-key-file other-key
expect 0 with_key status image key-8
dd if=/dev/urandom of=image bs=4096 count=9 conv=notrunc status=none
expect 4 volume status image --key-file third-key
expect 3 volume header restore image --key-file third-key --file backup
expect 4 volume header restore image --key-file key --file random
expect 0 volume header restore image --key-file key --file backup
expect 0 volume check image --key-file key
expect 4 volume header restore other --key-file key --file backup

section "check finds a byte that was flipped in a live slot, and none in a dead one"
make image --size 1M
serve image --trace trace
# Twice over all 256 blocks, front to back: so each is refreshed with the write that changes it.
for first in 0 256; do
    nbd fill 256 "$first"
done
stop_server
flip() {
    python3 - "$1" <<'END'
import sys
with open("image", "r+b") as file:
    file.seek(int(sys.argv[1]))
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
END
}
# Bodies in the middle of the second round: what a crash could have cut short, and opening would
# mend, is all after it.
main_area=$(python3 "$lib/trace.py" main-area image)
body_after() {
    python3 "$lib/trace.py" writes trace |
        awk -v from="$1" -v to="$2" '$1 >= from && $1 < to && $2 == 4096 { print $1 + 1000 }' |
        sed -n 380p
}
dead=$(body_after 196608 "$main_area")
live=$(body_after "$main_area" "$(stat --format %s image)")
flip "$dead"
expect 0 volume check image --key-file key
flip "$live"
expect 1 volume check image --key-file key --json
expect_json traceless.volume.check.v1 sound damaged places
check "one place" [ "$(python3 "$lib/fields.py" --get damaged <out)" -eq 1 ]
serve image
expect 0 nbd refused 256 256
check "one block is refused, and no other differs" [ "$(wc -l <out)" -eq 1 ]
stop_server
flip "$live"
expect 0 volume check image --key-file key

section "audit: verdicts and JSON"
expect 0 "$traceless" audit volume --scheme detwo --level quick --json
expect_json traceless.audit.v1 verdict claims
check "fields of a claim" python3 -c '
import json
claims = json.load(open("out"))["claims"]
fields = {"name", "verdict", "statistic", "p", "power", "evidence"}
assert claims and all(fields <= set(claim) for claim in claims)'
expect 1 "$traceless" audit volume --scheme plain --level quick --json
check "the verdict on plain" [ "$(python3 "$lib/fields.py" --get verdict <out)" != pass ]
expect 1 "$traceless" audit volume --scheme mutant:skips-clean --level quick
expect 2 "$traceless" audit volume --scheme none
cp image later
expect 0 "$traceless" audit diff image later --json

section "sockets from a service manager"
# A manager in a few lines: socket number 3, and two variables that say so.
cat >manager.py <<'END'
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("activated")
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
END
python3 manager.py "$traceless" volume serve image --key-file key 2>server.err &
server=$!
until python3 "$lib/nbd.py" activated verify 0 256 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || fail "the activated server has ended: $(cat server.err)"
    sleep 0.05
done
stop_server
check "the manager's socket stays" [ -S activated ]
if command -v systemd-socket-activate >/dev/null; then
    rm activated
    systemd-socket-activate --listen="$scratch/activated" \
        "$traceless" volume serve image --key-file key 2>server.err &
    server=$!
    until [ -S activated ]; do sleep 0.05; done
    python3 "$lib/nbd.py" activated verify 0 256
    kill -TERM "$server"
    wait "$server" || fail "activated by systemd: $(cat server.err)"
    check "closed" [ "$(status_of image clean)" = true ]
else
    leave_out "activation by systemd itself: systemd-socket-activate is not installed"
fi
if command -v systemd-analyze >/dev/null; then
    cp "$root"/dist/traceless-*.service "$root"/dist/traceless-*.socket .
    sed -i "s|/usr/bin/traceless|$traceless|" traceless-*.service
    expect 0 systemd-analyze verify --man=no ./traceless-*.socket ./traceless-*.service
    check "no warnings: $(cat err)" [ ! -s err ]
else
    leave_out "the units: systemd-analyze is not installed"
fi

section "man pages and completions"
share=$(dirname "$traceless")/share
# Every subcommand that is not hidden, as a page is called; those of traceless-lab have none.
subcommands() {
    "$traceless" "${@:1}" --help |
        sed -n '/^Usage: traceless-lab/q; /^Commands:/,/^$/s/^  \([a-z]\+\) .*/\1/p' |
        grep -vx help || true
}
pages_of() {
    local child
    echo "traceless${*:+-}$(IFS=-; echo "$*").1"
    for child in $(subcommands "$@"); do
        pages_of "$@" "$child"
    done
}
if [ -d "$share" ]; then
    pages_of | sort >pages
    check "every command has a page" [ "$(wc -l <pages)" -gt 15 ]
    (cd "$share/man/man1" && find . -name '*.1' -printf '%f\n' | sort) >found
    expect 0 comm -23 pages found
    check "pages are missing: $(cat out)" [ ! -s out ]
    expect 0 bash -n "$share/bash-completion/completions/traceless"
    check "completion for zsh" [ -s "$share/zsh/site-functions/_traceless" ]
    check "completion for fish" [ -s "$share/fish/vendor_completions.d/traceless.fish" ]
    if command -v man >/dev/null && command -v groff >/dev/null; then
        while read -r page; do
            expect 0 env MANWIDTH=80 man --warnings --local-file "$share/man/man1/$page"
            check "$page is rendered with warnings: $(cat err)" [ ! -s err ]
        done <pages
    else
        leave_out "how man pages look: man is not installed"
    fi
else
    leave_out "man pages: they are made by the build, beside the program in share"
fi
