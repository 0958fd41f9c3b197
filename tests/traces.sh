#!/usr/bin/env bash
# What the disk sees: two users' traces are equal, by the auditor and by a checker that shares no
# code with it; with plain encryption they are not. WRITES scales how much each user writes.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

WRITES=${WRITES:-2000}
BLOCKS=1024

compare() {
    "$traceless" audit compare "$1" "$2" --json
}

# Records what fio writes: scheme, trace, create options as one word, then fio's options.
record() {
    local scheme=$1 trace=$2
    read -ra options <<<"$3"
    volume create image --force --size "$((BLOCKS * 4096))" --scheme "$scheme" "${options[@]}" \
        --key-file key >made
    serve image --trace "$trace"
    fio --name="$trace" --ioengine=nbd --uri='nbd+unix:///?socket=socket' --bs=4k \
        --size="$((BLOCKS * 4096))" --io_size="$((WRITES * 4096))" --fsync=100 \
        --refill_buffers "${@:4}" >fio.out 2>&1 || fail "fio: $(tail -n 3 fio.out)"
    stop_server
    [ "$scheme" = plain ] ||
        check "the disk saw something of $trace that does not follow from its number of writes" \
            [ "$(python3 "$lib/trace.py" follows image "$trace")" = "$(status_of image writes)" ]
}

users() {
    record "$1" a.trace "$2" --rw=randwrite --randseed=1
    record "$1" b.trace "$2" --rw=write
    # The same block again and again.
    record "$1" c.trace "$2" --rw=write --size=4096
}

section "three users of detwo over NBD, $WRITES writes each"
for refresh in 1 3 1/3; do
    users detwo "--refresh $refresh"
    for other in b c; do
        expect 0 compare a.trace "$other.trace"
        expect_json traceless.audit.compare.v1 equal counts_a counts_b
        expect 0 python3 "$lib/trace.py" compare a.trace "$other.trace"
    done
done

section "requests of other sizes, several at a time"
record detwo d.trace "--refresh 5/2" --rw=randwrite --bs=4k-64k --iodepth=8 --fsync=0 --end_fsync=1

section "three users of plain encryption: their traces must differ"
users plain ""
for other in b c; do
    expect 1 compare a.trace "$other.trace"
    expect 1 python3 "$lib/trace.py" compare a.trace "$other.trace"
done

section "planted differences: the end is missing, one write is elsewhere"
record detwo a.trace "" --rw=randwrite
python3 - "$root/dist" <<'END'
import struct, sys
sys.path.insert(0, sys.argv[1])
import traceless_trace as tt
trace = tt.read("a.trace")
events = [list(map(int, event)) for event in zip(*trace)]
def write(path, events):
    with open(path, "wb") as out:
        out.write(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0))
        for time, surface, op, at, length, _ in events:
            out.write(struct.pack("<QQIBBH", time, at, length, op, surface, 0))
write("same.trace", events)
write("short.trace", events[:-1])
[event for event in events if event[2] == tt.WRITE][500][3] += 8192
write("moved.trace", events)
END
expect 0 compare a.trace same.trace
expect 1 compare a.trace short.trace
expect 1 python3 "$lib/trace.py" compare a.trace short.trace
expect 1 compare a.trace moved.trace
expect 1 python3 "$lib/trace.py" compare a.trace moved.trace
expect 1 python3 "$lib/trace.py" follows image moved.trace

section "two users of a mounted file system: each follows from its number of writes alone"
if can_mount; then
    mkdir mnt
    mounts+=("$scratch/mnt")
    for user in a b; do
        volume create image --force --size 48M --key-file key >made
        expect 0 volume mount image mnt --key-file key --trace "$user.trace"
        if [ "$user" = a ]; then
            cp -r "$root/crates" mnt/one
            rm -r mnt/one/traceless-volume
        else
            head --bytes 6M /dev/urandom >mnt/two
            dd if=/dev/urandom of=mnt/two bs=4096 seek=700 count=300 conv=notrunc status=none
        fi
        expect 0 volume unmount mnt
        writes=$(python3 "$lib/trace.py" follows image "$user.trace")
        check "writes in the trace of $user" [ "$writes" = "$(status_of image writes)" ]
    done
    expect 0 volume mount image mnt --key-file key --trace again.trace
    writes=$(status_of image writes)
    expect 0 volume unmount mnt
    expect 0 python3 "$lib/trace.py" follows image again.trace "$writes"
else
    leave_out "mounting: it takes root, /dev/fuse and loop devices"
fi
