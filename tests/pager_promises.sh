#!/usr/bin/env bash
# What programs rely on, paged by a thread or by another process: what is locked reaches no swap
# device, what is kept out of core dumps is in none, what is read arrives or is refused, nothing of
# a killed run stays, and nobody's file is overwritten.
# Alone: threads of the pager have processors of their own.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

modes=(thread)
if run --mode process -- true 2>err; then
    modes+=(process)
else
    leave_out "the mode process: $(cat err)"
fi
ways=()
for way in move protect; do
    run --way "$way" -- true 2>/dev/null && ways+=("--way $way")
done
[ "${#modes[@]}" -lt 2 ] || ways+=("--mode process")

swap=
core_pattern=
# What the machine is changed by goes back however this ends.
put_back() {
    [ -z "$swap" ] || swapoff "$swap" || true
    [ -z "$core_pattern" ] || echo "$core_pattern" >/proc/sys/kernel/core_pattern || true
}

gcc -O1 -Wall -Wextra -Werror "$lib/secrets.c" -o secrets
secrets() {
    "$python" "$lib/secrets.py" "$@"
}
lacks() {
    ! grep --quiet --text -e "$1" "$2"
}

# How often the secret is on the swap device, after a program planted it, did what it is told, and
# all memory of it and of whoever pages it was asked to leave. Sets `copies`.
swapped() {
    local who=("${@:1:$(($# - 1))}") actions=() running
    read -r -a actions <<<"${!#}"
    dd if=/dev/zero of=swapfile bs=1M count=64 conv=notrunc status=none
    mkswap swapfile >/dev/null 2>&1
    swapon swapfile
    swap=$scratch/swapfile
    mkfifo input
    "${who[@]}" ./secrets "${actions[@]}" pageout wait <input >out 2>err &
    running=$!
    exec 3>input
    rm input
    until grep -q pageout out; do
        kill -0 "$running" 2>/dev/null || fail "it has ended: $(cat out err)"
        sleep 0.02
    done
    secrets pageout "$running"
    # What is on the device is not what the kernel's cache has of the file.
    dd if=swapfile of=swapped iflag=direct bs=1M status=none
    exec 3>&-
    wait "$running" || fail "it failed: $(cat out err)"
    swapoff swapfile
    swap=
    copies=$(secrets count swapped)
    rm swapped
}

section "a secret that is locked is on no swap device"
can_swap() {
    [ "$(id -u)" -eq 0 ] || { why="it takes root" && return 1; }
    [ "${#lock[@]}" -eq 0 ] || { why="memory may not be locked" && return 1; }
    [ "$(cat /sys/module/zswap/parameters/enabled 2>/dev/null || true)" != Y ] ||
        { why="pages are kept in memory first (zswap)" && return 1; }
    dd if=/dev/zero of=swapfile bs=1M count=64 status=none && chmod 600 swapfile
    { mkswap swapfile && swapon swapfile && swapoff swapfile; } >/dev/null 2>err ||
        { why="no swap device can be had: $(cat err)" && return 1; }
}
if can_swap; then
    swapped env malloc
    check "the test finds what is not locked: $copies" [ "$copies" -gt 10000 ]
    swapped env "mmap lock"
    check "nor does the kernel swap what is locked: $copies" [ "$copies" -eq 0 ]
    for mode in "${modes[@]}"; do
        for actions in "malloc lock" "mmap" "mmap lockall unlockall"; do
            # All of it resident, and little of it.
            for resident in 256 16; do
                swapped "$traceless" run --mode "$mode" --resident "$resident" -- "$actions"
                check "$mode, $resident, $actions: $copies copies" [ "$copies" -eq 0 ]
                check "it was not refused" lacks ": -" out
            done
        done
        swapped "$traceless" run --mode "$mode" --lock off -- malloc
        check "$mode: what nobody locks is found: $copies" [ "$copies" -gt 1000 ]
        swapped "$traceless" run --mode "$mode" --lock off -- "malloc lock"
        check "$mode: but not once the program locks it: $copies" [ "$copies" -eq 0 ]
    done
    # Levels of a tree that are in memory hold pages.
    for scheme in path path-fused ring; do
        swapped "$traceless" run --scheme "$scheme" --cached 6 --resident 16 -- malloc
        check "$scheme, with levels in memory: $copies copies" [ "$copies" -eq 0 ]
    done
    # Helpers have keys and pages, too.
    swapped "$traceless" run --scheme eager-parallel --resident 16 -- malloc
    check "with helpers: $copies copies" [ "$copies" -eq 0 ]
else
    leave_out "swapping: $why"
fi

section "where memory may not be locked"
# Root may always, but for the capability.
without() {
    if [ "$(id -u)" -eq 0 ]; then
        capsh --drop=cap_ipc_lock -- -c "ulimit -l $1; exec \"\$@\"" - "${@:2}"
    else
        bash -c "ulimit -l $1; exec \"\$@\"" - "${@:2}"
    fi
}
if command -v capsh >/dev/null || [ "$(id -u)" -ne 0 ]; then
    for mode in "${modes[@]}"; do
        expect 0 without 64 "$traceless" run --mode "$mode" --stats stats -- ./secrets mmap lock
        check "it is said, once" [ "$(grep -c "may be swapped out" err)" = 1 ]
        check "the program's own lock is refused" grep -q "lock: -1 Cannot allocate" out
        check "it is counted" grep -q '"locked": false' stats
        expect 0 without 64 "$traceless" run --mode "$mode" --lock off -- ./secrets mmap
        sed -i "/^traceless: not paged were/d" err
        check "nothing is said of what was not asked for" [ ! -s err ]
        expect 125 without 64 "$traceless" run --mode "$mode" --lock strict -- true
        check "it is said what it takes" grep -q CAP_IPC_LOCK err
    done
else
    leave_out "a limit of locked memory: it takes capsh (libcap2-bin)"
fi
if [ "${#lock[@]}" -eq 0 ]; then
    expect 0 run --lock strict --stats stats -- ./secrets mmap lock
    check "it is counted" grep -q '"locked": true' stats
fi

section "a secret that is kept out of core dumps is in none"
# How often the secret is in the core dumps of a program that plants it and does what it is told,
# and of whoever pages it. Sets `copies`, and `dumps` to the number of core dumps.
dumped() {
    local code=0
    rm -rf cores
    mkdir cores
    "$@" >out 2>err || code=$?
    check "it ended with its signal, not $code" [ "$code" -eq 134 ]
    # The kernel waits for nobody.
    for _ in $(seq 100); do
        [ -z "$(find cores -name '*.part')" ] && [ -n "$(ls cores)" ] && break
        sleep 0.05
    done
    dumps=$(find cores -type f | wc -l)
    copies=$(secrets count cores/*)
}
can_dump() {
    [ "$(id -u)" -eq 0 ] || { why="it takes root" && return 1; }
    cat >catch <<END
#!/bin/sh
cat >$scratch/cores/\$1.part && mv $scratch/cores/\$1.part $scratch/cores/\$1
END
    chmod +x catch
    core_pattern=$(cat /proc/sys/kernel/core_pattern)
    echo "|$scratch/catch %p" >/proc/sys/kernel/core_pattern 2>/dev/null ||
        { core_pattern= && why="where core dumps go cannot be set" && return 1; }
}
if can_dump; then
    ulimit -c 0
    dumped ./secrets malloc dump
    check "the test finds what is not kept out: $copies" [ "$copies" -gt 10000 ]
    dumped ./secrets mmap mark dump
    check "nor does the kernel dump it: $copies in $dumps" [ "$dumps $copies" = "1 0" ]
    for mode in "${modes[@]}"; do
        for actions in "malloc mark" "mmap" "mmap mark restore"; do
            for resident in 256 16; do
                # shellcheck disable=SC2086
                dumped "$traceless" run --mode "$mode" --resident "$resident" -- \
                    ./secrets $actions dump
                check "$mode, $resident, $actions: $copies in $dumps" [ "$dumps $copies" = "1 0" ]
            done
        done
    done
    # Nor what a tree has in memory; nor is the last page that came left in a register.
    for options in "--scheme path --cached 6" "--scheme path-fused --cached 6" \
        "--scheme plain" "--scheme eager" "--scheme eager-parallel"; do
        for _ in 1 2 3 4 5; do
            # shellcheck disable=SC2086
            dumped "$traceless" run $options --resident 16 -- ./secrets malloc dump
            check "$options: $copies in $dumps" [ "$dumps $copies" = "1 0" ]
        done
    done
    # Who pages it is not dumped, whatever ends it.
    for options in "--scheme eager-parallel" "--mode process --scheme eager-parallel"; do
        rm -rf cores
        mkdir cores
        mkfifo input
        # shellcheck disable=SC2086
        "$traceless" run $options --resident 16 -- ./secrets malloc wait <input >out 2>err &
        running=$!
        exec 3>input
        rm input
        until pgrep --parent "$running" --full secrets >/dev/null; do sleep 0.02; done
        sleep 0.2
        read -r -a all <<<"$(secrets tree "$running")"
        # Some may end with the first of them.
        kill -ABRT "${all[@]:1}" 2>/dev/null || true
        exec 3>&-
        wait "$running" || true
        sleep 0.2
        copies=$(find cores -type f -exec "$python" "$lib/secrets.py" count {} +)
        check "$options: $copies copies, of ${#all[@]} processes" [ "${copies:-0}" -eq 0 ]
        check "there are helpers, and a pager" [ "${#all[@]}" -ge 3 ]
    done
    echo "$core_pattern" >/proc/sys/kernel/core_pattern
    core_pattern=
else
    leave_out "core dumps: $why"
fi

section "pages that copies of the process do not have"
gcc -O1 -Wall -Wextra -Werror "$lib/wiped.c" -o wiped
if run --mode process -- sh -c '(true)' 2>err; then
    evictions=1 same --mode process --resident 16 --memory 8M -- ./wiped
    expect 0 run --mode process --resident 16 --memory 8M -- ./wiped apart
    check "the copy has zeros" grep -q "^copy: 0 2 0 4" out
    check "the program has all" grep -q "^program: 1 2 3 4" out
else
    leave_out "copies of the process: $(cat err)"
fi

section "what is read past the C library arrives, or is refused"
gcc -O1 -Wall -Wextra -Werror "$lib/pinned.c" -o pinned
"$python" -c "
import sys
for page in range(64):
    sys.stdout.buffer.write(bytes((page * 7 + at) % 256 for at in range(4096)))" >pattern
if ./pinned pattern >native; then
    for way in "${ways[@]}"; do
        # shellcheck disable=SC2086
        expect 0 run $way --resident 16 --memory 8M -- ./pinned pattern
        check "$way: nothing is wrong" lacks WRONG out
        if [ "$way" = "--way move" ]; then
            check "it is as without paging" cmp native out
        else
            check "it is refused" grep -q "^registered: refused" out
            check "so is direct I/O, and later" grep -q "^set later: refused" out
            # What a paged program starts is refused the same, by the one filter.
            # shellcheck disable=SC2086
            expect 0 run $way --resident 16 --memory 8M -- env env env ./pinned pattern
            check "in what it starts, too" grep -q "^registered: refused" out
        fi
    done
else
    leave_out "io_uring and direct I/O: $(cat native)"
fi

section "nobody's file is overwritten"
for mode in "${modes[@]}"; do
    echo "a letter" >letter
    expect 125 run --mode "$mode" --backing letter -- true
    check "it is said why" grep -q "holds something that is no pager's" err
    check "it is as it was" [ "$(cat letter)" = "a letter" ]
    expect 125 run --mode "$mode" --backing /dev/null -- true
    check "a device is no file" grep -q "no regular file" err
    expect 0 run --mode "$mode" --memory 8M --backing pages -- ./secrets malloc
    expect 0 run --mode "$mode" --memory 16M --backing pages -- ./secrets malloc
    mkfifo input
    "$traceless" run --mode "$mode" --memory 8M --backing pages -- ./secrets malloc wait \
        <input >out 2>err &
    running=$!
    exec 3>input
    rm input
    until pgrep --parent "$running" --full secrets >/dev/null; do sleep 0.02; done
    sleep 0.2
    size=$(stat --format %s pages)
    (expect 125 run --mode "$mode" --backing pages -- true && grep -q "in use" err) ||
        fail "a second program takes the same file"
    check "it is as it was" [ "$(stat --format %s pages)" = "$size" ]
    read -r -a all <<<"$(secrets tree "$running")"
    kill -KILL "${all[@]}"
    wait "$running" 2>/dev/null || true
    exec 3>&-
    expect 0 run --mode "$mode" --backing pages -- true
    rm pages
done

section "nothing of a killed run stays"
cat >both.py <<'END'
import subprocess, sys
other = subprocess.Popen(["sleep", "1000"])
area = bytearray(1 << 22)
print(other.pid, flush=True)
while True:
    for page in range(0, 1 << 22, 4096):
        area[page] += page % 2
END
# Whether all of them end soon. Whoever adopts them may take long to look at what they left.
gone() {
    local pid
    for _ in $(seq 200); do
        local left=0
        for pid in "$@"; do
            grep -qs '^State:.*[^Z] (' "/proc/$pid/status" && left=1
        done
        [ "$left" -ne 0 ] || return 0
        sleep 0.02
    done
    return 1
}
for options in "--mode thread" "--mode thread --scheme eager-parallel" "--mode process"; do
    [[ $options != *process ]] || [ "${#modes[@]}" -gt 1 ] || continue
    # shellcheck disable=SC2086
    "$traceless" run $options --resident 128 -- "$python" both.py >pid 2>err &
    running=$!
    until [ -s pid ]; do
        kill -0 "$running" || fail "it has ended: $(cat err)"
        sleep 0.02
    done
    sleep 0.2
    read -r -a all <<<"$(secrets tree "$running")"
    check "there are several processes" [ "${#all[@]}" -ge 3 ]
    check "there is a folder of counters" [ -d "/dev/shm/traceless-run-$running" ]
    kill -KILL "$running"
    wait "$running" 2>/dev/null || true
    check "$options: all of ${all[*]} are gone" gone "${all[@]}"
    check "so is the folder" [ ! -e "/dev/shm/traceless-run-$running" ]
done
# Also a program that is stopped, which looks for nothing.
for mode in "${modes[@]}"; do
    "$traceless" run --mode "$mode" -- "$python" -c "
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)" 2>err &
    running=$!
    until program=$(pgrep --parent "$running" python) && grep -q '^State:.T' "/proc/$program/status"
    do
        kill -0 "$running" || fail "it has ended: $(cat err)"
        sleep 0.02
    done
    kill -KILL "$running"
    wait "$running" 2>/dev/null || true
    check "$mode: the stopped program is gone" gone "$program"
    check "so is the folder" [ ! -e "/dev/shm/traceless-run-$running" ]
done
# One that ends in order leaves what it started to itself.
expect 0 run -- "$python" -c "
import subprocess
print(subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL).pid)"
sleep 0.4
check "what outlives the first program goes on" kill -0 "$(cat out)"
kill "$(cat out)"

section "options that do not apply"
usage() {
    local named=$1
    shift
    expect 2 run "$@" -- true
    check "it is said of what: $(cat err)" grep -q -e "$named" err
}
usage "--scheme plain" --scheme plain --refresh 3
usage "--scheme detwo" --cached 4
usage "--scheme path" --scheme path --helpers 1
usage "--helpers 0" --scheme eager --helpers 0
usage "--mode process" --mode process --overflow 5
usage "--mode process" --mode process --policy clock
