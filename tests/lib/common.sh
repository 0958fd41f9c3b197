# What tests/*.sh share. Each of them sources it first, and then works in a folder of its own, which
# goes in the end together with everything that was started or mounted through these functions.
# shellcheck shell=bash
set -Eeuo pipefail

# mkfs and losetup are out of the way of an ordinary user, and cargo out of that of a fresh shell.
PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin:/usr/sbin:/sbin
# Messages of tools as the tests know them, and nothing of Python's beside the sources.
export PATH LC_ALL=C PYTHONDONTWRITEBYTECODE=1

# A version manager puts a script of its own before each start of an interpreter, which takes longer
# than most of what tests ask of one.
if interpreter=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) &&
    [ "$interpreter" != "$(command -v python3)" ]; then
    PATH=$(dirname "$interpreter"):$PATH
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib=$root/tests/lib
name=$(basename "$0" .sh)
if [ -z "${TRACELESS:-}" ]; then
    # An example brings the features of the unit tests.
    "$lib/build" --lib --bins --example scan
    TRACELESS=$(cd "$root" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/traceless
fi
traceless=$(realpath "$TRACELESS")
scratch=$(realpath "$(mktemp -d "${TMPDIR:-/var/tmp}/traceless.XXXXXXXX")")
# Sockets and URIs of NBD are relative to it: they must be short, and hold no blanks.
cd "$scratch"

# What `clean` must take down: places where something may be mounted, in order, and loop devices.
mounts=()
loops=()
# The server that runs, or the last that did.
server=
checks=0
not_tested=0

# Puts back what a script changed on this machine. Scripts that change something have their own.
put_back() {
    :
}

clean() {
    local status=$? pid place device
    trap '' INT TERM HUP PIPE
    put_back
    # What uses a mount goes first, then the mounts, and what serves them last.
    for pid in $(jobs -p); do
        [ "$pid" = "$server" ] || end "$pid"
    done
    for place in "${mounts[@]}"; do
        volume unmount "$place" >/dev/null 2>&1 || true
        # Unlike mountpoint, this finds it also when its daemon is dead.
        if findmnt --mountpoint "$place" >/dev/null; then
            umount "$place" 2>/dev/null || umount --lazy "$place" || true
        fi
        for device in "${loops[@]}"; do
            losetup --detach "$device" 2>/dev/null || true
        done
    done
    for pid in $(jobs -p); do
        end "$pid"
    done
    cd /
    rm -rf --one-file-system "$scratch"
    if [ "$status" -eq 0 ]; then
        echo "$name: $checks checks passed in $SECONDS s; $not_tested left out"
    fi
    exit "$status"
}

end() {
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

trap clean EXIT
trap 'echo "$name: FAILED in line $LINENO: $BASH_COMMAND" >&2' ERR
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 141' PIPE

# What a server at the URL $1 answers. Also tells whether the server was content.
fetch() {
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' "$1"
}

section() {
    printf '[%3d s] %s\n' "$SECONDS" "$*"
}

fail() {
    echo "$name: FAILED: $*" >&2
    exit 1
}

# Says what cannot be tried here, and why.
leave_out() {
    not_tested=$((not_tested + 1))
    echo "        NOT TESTED: $*"
}

volume() {
    case ${1:-} in
        # In a session of its own, where Ctrl-C does not reach it half-way.
        mount | unmount) setsid --wait "$traceless" volume "$@" ;;
        *) "$traceless" volume "$@" ;;
    esac
}

# Runs a command that must end with the exit code CODE; what it prints goes to `out` and `err`.
expect() {
    local wanted=$1 code=0
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    if [ "$code" -ne "$wanted" ]; then
        tail -n 20 "$scratch/out" "$scratch/err" >&2
        fail "exit code $code instead of $wanted from: $*"
    fi
    checks=$((checks + 1))
}

# Checks a condition, given as a command, under a name.
check() {
    local what=$1
    shift
    "$@" || fail "$what: $*"
    checks=$((checks + 1))
}

# Whether the file $1 has a line that begins with $2, and is written to its end: a reader may find
# a part of a line.
has_line() {
    [ "$(tail -c 1 "$1" 2>/dev/null | wc -l)" = 1 ] && grep -q "^$2" "$1"
}

# Starts a command and waits until it has printed a line that begins with WORD. Its output goes to
# NAME.out and NAME.err, its number to `started`. start_service NAME WORD COMMAND...
start_service() {
    local name=$1 word=$2
    shift 2
    rm -f "$name.out"
    "$@" >"$name.out" 2>"$name.err" </dev/null &
    started=$!
    for _ in $(seq 400); do
        ! has_line "$name.out" "$word" || return 0
        [ -d "/proc/$started" ] || break
        sleep 0.05
    done
    cat "$name.out" "$name.err" >&2
    fail "$word was not printed by: $*"
}

# Ends what was started last, which must end well.
stop_service() {
    kill "$started"
    wait "$started"
}

# Waits until the service `gateway` has said for the $1th time that its second copy is up to date.
wait_for_copy() {
    for _ in $(seq 300); do
        [ "$(grep -c "second copy is up to date" gateway.err)" -lt "$1" ] || return 0
        sleep 0.1
    done
    fail "the copy is not brought up to date"
}

# Checks that `out` is JSON with the schema SCHEMA and each of the FIELDS.
expect_json() {
    python3 "$lib/fields.py" "$@" <"$scratch/out" || fail "the JSON is not as promised"
    checks=$((checks + 1))
}

# The value of one field of a volume's status, opened with the key `key`.
status_of() {
    volume status "$1" --key-file key --json | python3 "$lib/fields.py" --get "$2"
}

# Serves an image at the socket `socket`, then options. Sets `server`.
serve() {
    rm -f server.err
    "$traceless" volume serve "$1" --key-file key --socket socket "${@:2}" 2>server.err &
    server=$!
    until [ -S socket ] && python3 "$lib/nbd.py" socket probe 2>/dev/null; do
        if ! kill -0 "$server" 2>/dev/null; then
            cat server.err >&2
            fail "the server of $1 has ended"
        fi
        sleep 0.02
    done
}

# SIGTERM closes the volume: it must say nothing and exit with 0.
stop_server() {
    local code=0
    kill -TERM "$server"
    wait "$server" || code=$?
    if [ "$code" -ne 0 ] || [ -s server.err ]; then
        cat server.err >&2
        fail "the server ended with $code on SIGTERM"
    fi
}

# As a crash does.
kill_server() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
}

nbd() {
    python3 "$lib/nbd.py" socket "$@"
}

# Whether a volume can be mounted here: root, FUSE, and loop devices.
can_mount() {
    [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ] && [ -c /dev/loop-control ] &&
        (: <>/dev/fuse) 2>/dev/null
}

sha256_of() {
    sha256sum "$1" | cut -d ' ' -f 1
}

head --bytes 32 /dev/urandom >key
