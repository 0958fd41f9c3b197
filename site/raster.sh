#!/usr/bin/env bash
# Records what the disk is asked for by two users of a volume, and prints docs/raster/traces.js.
# The places follow from the users alone, or from the number of writes: each run prints the same.
# shellcheck source-path=SCRIPTDIR source=../tests/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tests/lib/common.sh"
exec 3>&1 >&2

head --bytes 32 /dev/urandom >key
for scheme in plain detwo; do
    for user in bookkeeper photographer; do
        rm --force image
        volume create image --size 2M --scheme "$scheme" --key-file key --cipher aes-256-gcm
        serve image --trace "$scheme.$user.trace"
        python3 "$root/site/users.py" "$user" socket
        stop_server
    done
done
python3 "$root/site/users.py" print . >&3
