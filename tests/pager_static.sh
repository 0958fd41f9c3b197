#!/usr/bin/env bash
# Programs that make system calls past the C library: those that are linked statically, which load
# no library, so that this one loads them; and those of Go.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

if [ "$(uname -m)" != x86_64 ]; then
    leave_out "programs that are linked statically: this is no x86-64"
    exit 0
fi

section "system calls of a program's own"
gcc -static -O1 -Wall -Wextra -Werror -pthread "$lib/static.c" -o static
gcc -static-pie -O1 -Wall -Wextra -Werror -pthread "$lib/static.c" -o anywhere
same --resident 64 --memory 32M -- ./static
same --resident 64 --memory 32M -- ./anywhere
(
    # Numbers of files that the pager has to share.
    ulimit -n 256
    same --resident 64 --memory 32M -- ./static
)
same --resident 64 --memory 32M --policy clock --scheme eager -- ./static
same --resident 64 --memory 32M --way protect --lock off -- ./static
same --resident 64 --memory 32M --backing pages -- ./static
rm pages*
same --resident 64 --memory 32M --scheme path-fused --trace record -- ./static again 0
check "the record is whole" "$traceless" audit compare record record

section "shells, and what they run"
busybox=$(command -v busybox)
for shell in "$busybox" bash; do
    [ "$shell" = bash ] || shell+=" sh"
    # The shell's own words, and its options.
    # shellcheck disable=SC2016,SC2086
    evictions=0 same --resident 64 --memory 32M -- $shell -c '
        for n in 1 2 3; do echo "$n" | cat; done
        (x=5; echo "sub $x")
        ./static again 3 || echo "it ends with $?"
        '"$busybox"' seq 1 20000 | '"$busybox"' sort -n | tail -n 1'
done
cat >script <<END
#!$busybox sh
echo "\$0 has \$# arguments: \$*"
END
chmod +x script
evictions=0 same --resident 64 --memory 32M -- ./script one "two three"

section "programs that run programs"
gcc -O1 -Wall -Werror "$lib/executes.c" -o executes
gcc -static -O1 -Wall -Werror "$lib/executes.c" -o executes-static
for program in ./executes ./executes-static; do
    evictions=0 same --resident 64 --memory 32M -- "$program" ./static ./script /bin/true
    check "all of them are paged" "$python" -c "
import json
evictions = [one['evictions'] for one in json.load(open('stats'))]
assert sum(number > 100 for number in evictions) >= 9, evictions"
done
evictions=0 same --resident 64 --memory 32M -- env -i ./executes-static ./static

section "Go"
if command -v go >/dev/null; then
    CGO_ENABLED=0 GOFLAGS=-mod=mod GO111MODULE=off go build -o words "$lib/words.go"
    most=512 same --resident 512 --memory 64M -- ./words ./static
    # Programs with the dynamic loader: without the C library, and with code in C.
    export GO111MODULE=off
    CGO_ENABLED=0 go build -buildmode=pie -ldflags=-buildid= -o words-pie "$lib/words.go"
    CGO_ENABLED=1 go build -o words-c "$lib/words.go" "$lib/cgo.go"
    # It has no build identifier, by which programs of Go are known.
    CGO_ENABLED=1 go build -buildmode=pie -ldflags=-buildid= -o words-c-pie \
        "$lib/words.go" "$lib/cgo.go"
    for program in words-pie words-c words-c-pie; do
        most=512 same --resident 512 --memory 64M -- "./$program" ./static
        # Copies of it have 3 MB.
        expect 0 run --resident 512 --memory 64M --strict=10 -- "./$program"
    done
    most=512 same --resident 512 --memory 64M --policy clock --scheme eager -- ./words-c
    most=512 same --resident 512 --memory 64M --way protect --lock off -- ./words-c
    expect 0 run --mode process --resident 512 --memory 64M -- ./words-c
else
    leave_out "Go: it is not installed"
fi

section "programs of Go from packages"
mkdir -p files
head --bytes 3000000 /dev/urandom >files/random
seq 200000 >files/numbers
evictions=0 same --resident 2048 --memory 256M -- rclone sync files synced
check "all was copied" diff -r files synced
export RESTIC_PASSWORD=password
expect 0 run --resident 2048 --memory 512M --strict -- restic init --quiet --repo repository
expect 0 run --resident 2048 --memory 512M --strict -- restic backup --quiet --repo repository files
expect 0 run --resident 2048 --memory 512M --strict -- \
    restic restore latest --quiet --repo repository --target restored
check "all came back" diff -r files restored/files
# Without paging, as a check of what was written.
expect 0 restic check --read-data --quiet --repo repository

section "how much is not paged"
expect 0 run --resident 64 --memory 32M --strict -- ./static again 0
[ ! -x words ] || expect 0 run --resident 512 --memory 64M --strict -- ./words

section "what cannot be loaded"
expect 125 run --mode process -- ./static
check "it is said in which mode it can be" grep -q "mode thread" err
# A table of segments that is cut off, and one whose first segment is nowhere.
head --bytes 100 static >cut
chmod +x cut
expect 126 run -- ./cut
# A first segment that is nowhere, one that is longer in the file, and no code.
for damage in "16 ffffffffffffffff" "40 0000000000000000" "4 04"; do
    "$python" - $damage <<'DAMAGE'
import sys
data = bytearray(open("static", "rb").read())
at, damage = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
for entry in range(64, 64 + 56 * data[56], 56):
    if data[entry] == 1 and (len(damage) > 1 or data[entry + 4] & 1):
        data[entry + at:entry + at + len(damage)] = damage
open("damaged", "wb").write(data)
DAMAGE
    chmod +x damaged
    expect 126 run -- ./damaged
    check "it is said why" grep -q "headers are damaged" err
done

section "programs that the kernel would not run, and loaders"
cp static unmarked
chmod -x unmarked
evictions=0 same --resident 64 --memory 32M -- "$busybox" sh -c './unmarked again 0; echo $?'
evictions=0 same --resident 64 --memory 32M -- "$busybox" sh -c \
    '/lib64/ld-linux-x86-64.so.2 /bin/echo by the loader'
mkdir -p root/bin
cp "$busybox" root/bin/busybox
if [ "$(id -u)" -eq 0 ]; then
    # There is no loader under that root, so the program runs without paging.
    evictions=0 same --resident 64 --memory 32M -- \
        bash -c 'chroot root /bin/busybox echo under another root'
fi

section "ends"
for signal in KILL SEGV SYS; do
    number=$((128 + $(kill -l "$signal")))
    # The shell's own number.
    # shellcheck disable=SC2016
    expect "$number" run --memory 32M -- "$busybox" sh -c 'kill -'"$signal"' $$'
done
