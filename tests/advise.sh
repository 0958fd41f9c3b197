#!/usr/bin/env bash
# What `traceless advise` says is true: its commands run, and make what was priced.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# Advice as JSON in `out`, with the exit code $1.
advise() {
    local code=$1
    shift
    expect "$code" "$traceless" advise "$@" --json
    expect_json traceless.advise.v1 watcher hide_reads protected product scheme options cost \
        observes learns notes commands candidates nearest built_with
    cp out advice
}

# A number of the advice, by an expression over its JSON `a`.
number() {
    python3 -c "
import json
a = json.load(open('advice'))
print($1)"
}

# Sets `words` to the command number $1 of the advice, without the program's name.
command_of() {
    mapfile -t words < <(number "'\\n'.join(a['commands'][$1]['words'][1:])")
}

section "a volume is what was priced"
for options in "" "--pattern scattered" "--memory 100K --space-factor 2" \
    "--writes 80 --space-factor 5"; do
    read -ra wished <<<"$options"
    advise 0 --watcher copies --size 64M "${wished[@]}"
    command_of 0
    expect 0 "$traceless" "${words[@]}" --key-file key --force
    check "the scheme" [ "$(status_of volume.img scheme)" = "$(number "a['scheme']")" ]
    for pair in image_bytes:store_bytes space_factor:space_factor write_amplification:written; do
        check "${pair%:*}, with $options" \
            [ "$(status_of volume.img "${pair%:*}")" = "$(number "a['cost']['${pair#*:}']")" ]
    done
    memory=$(($(status_of volume.img map_bytes) + $(status_of volume.img buffer_bytes)))
    check "memory, with $options" [ "$memory" = "$(number "a['cost']['memory_bytes']")" ]
    serve volume.img
    nbd write 4096 7
    nbd verify 4096 7
    stop_server
done
advise 0 --watcher device-writes --size 64M
command_of 0
expect 0 "$traceless" "${words[@]}" --key-file key --force
if can_mount; then
    command_of 1
    mkdir files
    mounts+=("$scratch/files")
    expect 0 setsid --wait "$traceless" "${words[@]/#DIR/files}" --key-file key
    echo contents >files/file
    expect 0 volume unmount files
else
    leave_out "mount: it takes root, FUSE and loop devices"
fi

section "a gateway, on one machine, and with its host elsewhere"
port=$((20000 + RANDOM % 12000))
asks() {
    check "a value is kept" test "$(redis-cli -p "$port" set name value)" = OK
    check "a value comes back" test "$(redis-cli -p "$port" get name)" = value
}
advise 0 --watcher cloud --size 4M
command_of 2
start_service local RESP "$traceless" "${words[@]/#127.0.0.1:6400/127.0.0.1:$port}"
asks
kill "$started"
wait "$started" || fail "the gateway: $(cat local.err)"
advise 0 --watcher cloud --size 4M --rate 200
check "it says the rate" [ "$(number "a['cost']['queries']['rate']")" = 200 ]
check "and the price" \
    [ "$(number "120 < a['cost']['queries']['dollars_per_month'] < 121")" = True ]
expect 2 "$traceless" advise --watcher cloud --size 4M --dollars 120
check "it says what would do" grep -q "it costs 120.0[1-9] or more" err
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=gateway \
    -addext subjectAltName=DNS:gateway -addext basicConstraints=CA:FALSE \
    -keyout gateway.key -out gateway.pem 2>/dev/null
host=127.0.0.1:$((port + 1))
command_of 0
start_service host "host at" "$traceless" "${words[@]/#0.0.0.0:6500/$host}"
cp tree/host.pem .
command_of 1
words=("${words[@]/#host.example:6500/$host}")
start_service gateway RESP "$traceless" "${words[@]/#127.0.0.1:6400/127.0.0.1:$port}"
asks
kill "$started"
wait "$started" || fail "the gateway: $(cat gateway.err)"

section "where no product protects it says so, and what comes near"
for options in "device" "device-writes --hide-reads yes" "bus" "kernel"; do
    read -ra wished <<<"$options"
    advise 1 --watcher "${wished[@]}"
    check "it is not protected" [ "$(number "a['protected'] or a['product']")" = None ]
    check "something comes near" [ "$(number "len(a['nearest'])")" -ge 2 ]
    expect 1 "$traceless" advise --watcher "${wished[@]}"
    check "in words, too" grep -q "^No product" out
done
expect 2 "$traceless" advise
expect 2 "$traceless" advise --watcher copies
expect 2 "$traceless" advise --watcher copies --size 0
expect 2 "$traceless" advise --watcher copies --size 1G --memory 1
check "it says what would do" grep -q "it takes .* or more" err
expect 2 "$traceless" advise --watcher nobody --size 1G
expect 2 "$traceless" advise --watcher swap --size 1G --rate 5 --json
cp err out
expect_json traceless.failure.v1 exit_code kind error

section "on a terminal it puts questions"
check "answers make advice" python3 - "$traceless" <<'ANSWERS'
import os, pty, sys

pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "advise", "--memory", "1M"])
os.write(terminal, b"copies\n64M\n2\nscattered\n30\n")
said = b""
try:
    while part := os.read(terminal, 4096):
        said += part
except OSError:
    # The end of a terminal.
    pass
_, status = os.waitpid(pid, 0)
said = said.decode()
assert os.waitstatus_to_exitcode(status) == 0, said
for words in ["Which adversary", "How much is to be protected", "traceless volume create"]:
    assert words in said, (words, said)
assert "How much memory" not in said, said
ANSWERS

section "a program is paged as was priced"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"
"$python" -c "print(*(n * 7919 % 20011 for n in range(1, 10001)), sep='\\n')" >numbers
sort numbers >native
for options in "--memory 128K" "--hide-reads yes --memory 1200K"; do
    read -ra wished <<<"$options"
    advise 0 --watcher swap --size 8M "${wished[@]}"
    command_of 0
    resident=$(number "a['options'][a['options'].index('--resident') + 1]")
    if [ "${#lock[@]}" -gt 0 ]; then
        leave_out "--lock strict: pages may not be locked here"
        words=("${words[@]/#strict/off}")
    fi
    # The program comes last, and options before it.
    words=("${words[@]:0:${#words[@]}-2}" --stats stats -- sort numbers)
    expect 0 "$traceless" "${words[@]}"
    check "the same output" cmp native out
    check "no more pages are resident" "$python" -c "
import json
first = json.load(open('stats'))[0]
assert first['evictions'] > 0 and first['resident_max'] <= $resident, first"
done
