#!/usr/bin/env bash
# A deniable image: hidden volumes beside a public one, and what a disk and copies show of them.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

SIZE=${SIZE:-16}

uri() {
    echo "nbd+unix:///$1?socket=socket"
}

run_fio() {
    fio --name=verify --ioengine=nbd --uri="$(uri "$1")" --verify=crc32c --verify_fatal=1 \
        --randrepeat=1 --bs=4k "${@:2}"
}

# Makes an image with two sessions, and hidden volumes of the keys $1 and $2. A key that is never
# used again stands for a session in which nothing was hidden.
make_image() {
    local before=key
    volume create image --force --deniable --size "${SIZE}M" --key-file key >made
    for hidden in "$@"; do
        volume hidden add image --size 2M --key-file "$before" --new-key-file "$hidden" \
            --overwrite-hidden --cover 64 >made
        [ "$hidden" = no.key ] || before=$hidden
        head --bytes 32 /dev/urandom >no.key
    done
}

# Serves an image with another key than `key`.
serve_with() {
    cp "$1" used.key
    mv key public.key
    mv used.key key
    serve "${@:2}"
    mv public.key key
}

for number in 1 2; do
    head --bytes 32 /dev/urandom >"hidden-$number.key"
done

section "an image and two hidden volumes"
expect 0 volume create image --deniable --size "${SIZE}M" --key-file key
check "the image has no hole" [ "$(($(stat --format '%b * 512 / %s' image)))" -ge 1 ]
expect 2 volume hidden add image --size 2M --key-file key --new-key-file hidden-1.key
expect 0 volume hidden add image --size 2M --key-file key --new-key-file hidden-1.key \
    --overwrite-hidden
expect 0 volume hidden add image --size 3M --key-file hidden-1.key --new-key-file hidden-2.key \
    --cover 64
expect 0 volume hidden list image --key-file hidden-2.key --json
expect_json traceless.volume.hidden.v1 public_bytes hidden_bytes hidden_room_bytes
check "two are listed" grep -q '2097152' out
expect 0 volume hidden list image --key-file key
check "the public key opens none" [ "$(wc -l <out)" -eq 1 ]
expect 4 volume status image --key-file key
expect 3 volume hidden add image --size 1M --key-file hidden-2.key --new-key-file key

section "status, check and keys tell of the public volume only"
expect 0 volume status image --deniable --key-file key --json
expect_json traceless.volume.status.v1 scheme size_bytes writes key_slots
cp out public.status
expect 0 volume status image --deniable --key-file hidden-2.key --json
cp out hidden.status
expect 0 cmp public.status hidden.status
for key in key hidden-2.key; do
    expect 0 volume check image --deniable --key-file "$key"
done
head --bytes 32 /dev/urandom >new.key
expect 0 volume keys add image --deniable --key-file key --new-key-file new.key
expect 0 volume keys list image --deniable --key-file new.key
check "two slots are in use" [ "$(wc -l <out)" -eq 2 ]
expect 0 volume keys remove image --deniable --key-file new.key
expect 3 volume keys list image --deniable --key-file new.key
expect 0 volume keys change image --deniable --key-file key --new-key-file new.key
expect 3 volume status image --deniable --key-file key
expect 0 volume keys change image --deniable --key-file new.key --new-key-file key
expect 3 volume keys add image --deniable --key-file hidden-2.key --new-key-file new.key
expect 0 volume hidden list image --key-file hidden-2.key

section "the public volume and both hidden ones, served at once, verified"
serve_with hidden-2.key image --deniable --cover 200
expect 0 nbdinfo --list "$(uri "")"
check "three exports" [ "$(grep -c '^export=' out)" -eq 3 ]
expect 0 run_fio "" --rw=randwrite --size="$((SIZE / 2))M" --fsync=64 --iodepth=8
expect 0 run_fio hidden-1 --rw=randwrite --size=1M --fsync=64 --end_fsync=1 &
expect 0 run_fio hidden-2 --rw=randwrite --size=2M --end_fsync=1 &
expect 0 run_fio "" --rw=randwrite --size="$((SIZE / 2))M" --io_size="${SIZE}M" --iodepth=4
wait %2 %3
stop_server
serve_with hidden-2.key image --deniable --read-only
expect 0 run_fio hidden-1 --rw=read --size=1M --verify_only
expect 0 run_fio hidden-2 --rw=read --size=2M --verify_only
expect 0 run_fio "" --rw=read --size="$((SIZE / 2))M" --verify_only
stop_server

section "what a flush covered is there after a kill"
head --bytes 1M /dev/urandom >data
serve_with hidden-2.key image --deniable --cover 200
expect 0 nbdcopy --flush data "$(uri hidden-1)"
kill_server
serve_with hidden-1.key image --deniable --cover 200
expect 0 nbdcopy "$(uri hidden-1)" back
expect 0 cmp --bytes 1M data back
kill_server

section "the public key alone reads, and overwrites only if told"
expect 2 volume serve image --key-file key --socket socket --cover 3
serve image --deniable
expect 1 qemu-io -f raw -c "write 0 4k" nbd:unix:socket
expect 0 nbdcopy "$(uri "")" back
kill_server
serve image --deniable --protect-key-file hidden-2.key --cover 10
expect 0 qemu-io -f raw -c "write 0 64k" -c flush nbd:unix:socket
stop_server
expect 0 volume hidden list image --key-file hidden-2.key
serve image --deniable --overwrite-hidden --cover 0
expect 0 run_fio "" --rw=write --size="${SIZE}M" --bs=64k
stop_server
expect 3 volume hidden list image --key-file hidden-2.key

section "the disk sees the same of users with 0, 1 and 2 hidden volumes"
record() {
    local trace=$1 key=$2
    serve_with "$key" image --deniable --overwrite-hidden --cover 0 --trace "$trace"
    for hidden in "${@:3}"; do
        # Without a flush, which would wait for public writes.
        nbdcopy some "$(uri "$hidden")" || fail "nbdcopy to $hidden"
    done
    fio --name=public --ioengine=nbd --uri="$(uri "")" --rw=randwrite --bs=4k --size=4M \
        --io_size=8M --fsync=100 --randseed=1 >fio.out 2>&1 || fail "fio: $(tail -n 3 fio.out)"
    stop_server
}
head --bytes 300K data >some
head --bytes 32 /dev/urandom >no.key
make_image no.key no.key
record none.trace key
make_image no.key hidden-1.key
record one.trace hidden-1.key hidden-1
make_image hidden-1.key hidden-2.key
record two.trace hidden-2.key hidden-1 hidden-2
for hidden in one two; do
    expect 0 python3 "$lib/trace.py" compare none.trace "$hidden.trace"
    # What moves is read, so the traces have other reads; each write is the same.
    python3 "$lib/trace.py" writes none.trace >none.writes
    expect 0 python3 "$lib/trace.py" writes "$hidden.trace"
    cp out with.writes
    expect 0 cmp none.writes with.writes
done

section "the public volume and a hidden one, each with a file system"
if can_mount; then
    mounts+=("$scratch/mnt")
    mkdir mnt
    make_image hidden-1.key hidden-2.key
    expect 2 volume mount image mnt --deniable --key-file key
    expect 2 volume mount image mnt --deniable --key-file hidden-1.key --hidden 2
    for turn in 1 2; do
        expect 0 volume mount image mnt --deniable --key-file hidden-2.key --cover 200
        [ "$turn" -eq 2 ] || cp some mnt/public
        expect 0 cmp some mnt/public
        expect 0 volume unmount mnt
        expect 0 volume mount image mnt --deniable --key-file hidden-2.key --hidden 2 --cover 4000
        [ "$turn" -eq 2 ] || cp some mnt/secret
        expect 0 cmp some mnt/secret
        check "the public file is not here" [ ! -e mnt/public ]
        expect 0 volume unmount mnt
    done
    expect 0 volume mount image mnt --deniable --key-file key --read-only
    expect 0 cmp some mnt/public
    expect 0 volume unmount mnt
    expect 0 volume check image --deniable --key-file hidden-2.key
else
    leave_out "mounting: it takes root, /dev/fuse and loop devices"
fi

section "damage to bodies of slots is mended, with the key of the most secret volume"
# Bytes of the image in turn, until one is part of what is live and keeps nothing closed.
is_damaged() {
    volume check image --deniable --key-file hidden-2.key --json >out 2>err || true
    grep -q '"sound": *false' out && ! grep -q '"writes": *null' out
}
cp image whole
size=$(stat --format %s image)
for at in $(seq "$((size / 3))" 45056 "$size"); do
    printf 'spoilt' | dd of=image bs=1 seek="$at" conv=notrunc status=none
    ! is_damaged || break
    dd if=whole of=image bs=1 skip="$at" seek="$at" count=6 conv=notrunc status=none
done
expect 1 volume check image --deniable --key-file hidden-2.key
expect 2 volume check image --deniable --key-file key --repair
check "it says which key" grep -q 'most secret' err
expect 1 volume check image --deniable --key-file hidden-2.key --repair
check "the block is named" grep -q '^lost: block' out
expect 0 volume check image --deniable --key-file hidden-2.key
cp image sound
expect 0 volume check image --deniable --key-file hidden-2.key --repair
! cmp --quiet image sound || fail "a repair of what is sound is no session"

section "a hidden volume is removed"
expect 0 volume hidden remove image --key-file hidden-1.key --cover 64
expect 3 volume hidden list image --key-file hidden-1.key
expect 0 volume hidden list image --key-file hidden-2.key
check "one is left" [ "$(wc -l <out)" -eq 2 ]
