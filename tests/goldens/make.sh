#!/usr/bin/env bash
# Makes the goldens of tests/goldens.sh anew, with the program TRACELESS: volumes, a gateway's
# folder and its backup as this version leaves them. They are made when a format is new, and never
# changed after that: later versions must open them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
nbd=$here/../lib/nbd.py
traceless=$(realpath "${TRACELESS:?names the program}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
printf '%032d' 7 >key

# Serves the volume $1.img, lets a client do the rest, and ends the server with the signal $2.
with_server() {
    local image=$1.img signal=$2 server
    rm -f socket
    "$traceless" volume serve "$image" --key-file key --socket socket 2>/dev/null &
    server=$!
    until [ -S socket ] && python3 "$nbd" socket probe 2>/dev/null; do sleep 0.05; done
    shift 2
    "$@"
    kill "-$signal" "$server"
    wait "$server" || true
}

written() {
    # No more than it takes: what is sealed cannot be packed.
    python3 "$nbd" socket fill 8 100
    python3 "$nbd" socket fill 8 1
    python3 "$nbd" socket flush
}

volume() {
    local name=$1
    shift
    "$traceless" volume create "$name.img" --size 64K --unfilled --key-file key \
        --kdf-memory 8M --kdf-time 1 "$@" >/dev/null 2>&1
    with_server "$name" TERM written
}

volume detwo-aegis --scheme detwo --refresh 1/3 --cipher aegis-256x2
volume sq-map-disk --scheme sq --map disk --cipher aegis-256
for scheme in detwo sq; do
    volume "$scheme-left-open" --scheme "$scheme" --cipher aes-256-gcm
    with_server "$scheme-left-open" KILL written
done

port=6411
# Writes values to a gateway.
write_names() {
    until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.05; done
    for ((nth = 0; nth < 20; nth++)); do
        redis-cli -p "$port" set "name $nth" "$(printf "%0$((40 * nth + 1))d" "$nth")" >/dev/null
    done
    redis-cli -p "$port" del "name 3" >/dev/null
}

"$traceless" gateway --local gateway --blocks 64 --block-len 256 --allow-simulated-tee \
    --resp "127.0.0.1:$port" 2>/dev/null &
gateway=$!
write_names
kill -TERM "$gateway"
wait "$gateway" || true

for golden in *.img gateway; do
    tar --create --sparse --sort=name --owner=0 --group=0 --mtime=@0 -- "$golden" key |
        xz -9 >"$here/${golden%.img}.1.tar.xz"
done

# The same with state and tree in a storage engine.
mkdir engine
redis-server --port 6412 --dir engine --save '' --appendonly no >/dev/null &
redis=$!
until redis-cli -p 6412 ping >/dev/null 2>&1; do sleep 0.05; done
"$traceless" gateway --state 'redis://127.0.0.1:6412/?store=state' \
    --store redis://127.0.0.1:6412/ --key-file key --blocks 64 --block-len 256 --lambda 4 \
    --allow-simulated-tee --resp "127.0.0.1:$port" 2>/dev/null &
gateway=$!
write_names
# As a crash leaves it.
kill -KILL "$gateway"
wait "$gateway" || true
redis-cli -p 6412 save >/dev/null
kill "$redis"
wait "$redis" || true
tar --create --sort=name --owner=0 --group=0 --mtime=@0 -- engine key |
    xz -9 >"$here/engine.1.tar.xz"

"$traceless" gateway backup --local gateway --blocks 64 --block-len 256 --allow-simulated-tee \
    --to backup >/dev/null 2>&1
cp gateway/gateway/key key
tar --create --sort=name --owner=0 --group=0 --mtime=@0 -- backup key |
    xz -9 >"$here/backup.1.tar.xz"
