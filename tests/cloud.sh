#!/usr/bin/env bash
# The cloud store behind the Redis protocol, through kill -9.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
gateway=("$traceless" gateway --local store --blocks 6000 --block-len 256 --lambda 8
    --resp "127.0.0.1:$port")

start() {
    start_service gateway RESP "${gateway[@]}" --allow-simulated-tee "$@"
}

# What the gateway answers to the words $@.
ask() {
    python3 - "$port" "$@" <<'ASK'
import socket, sys

client = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rwb")
words = [word.encode() for word in sys.argv[2:]]
client.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
client.flush()
line = client.readline().decode().strip()
print(client.readline().decode().strip() if line.startswith("$") else line)
ASK
}

section "a simulated enclave has to be allowed"
expect 2 "${gateway[@]}"
check "it says why" grep -q "protects nothing" err

section "no answered write is lost by kill -9"
check "the store and its checker agree" python3 - "$port" "$traceless" <<'CHECK'
import random, socket, subprocess, sys, time

port, traceless = int(sys.argv[1]), sys.argv[2]
options = ["--blocks", "6000", "--block-len", "256", "--lambda", "4", "--allow-simulated-tee"]
command = [traceless, "gateway", "--local", "checked", *options, "--resp", f"127.0.0.1:{port}"]
random.seed(1)
model = {}


class Client:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rwb")

    def ask(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        assert line[:1] in b"+:", line
        return line[1:-2]


def start():
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert b"RESP" in server.stdout.readline()
    return server, Client()


def names():
    return b"name %d" % random.randrange(300)


kills = 12
for life in range(kills + 1):
    server, client = start()
    for name, value in model.items():
        assert client.ask(b"GET", name) == value, (life, name)
    deadline = time.monotonic() + random.uniform(0.05, 0.6)
    while life < kills and time.monotonic() < deadline:
        name, value = names(), random.randbytes(random.randrange(1500))
        client.ask(b"SET", name, value)
        model[name] = value
    # One more, whose answer nobody waits for: it may have happened or not.
    name = names()
    client.file.write(b"*2\r\n$3\r\nDEL\r\n$%d\r\n%s\r\n" % (len(name), name))
    client.file.flush()
    model.pop(name, None)
    server.kill() if life < kills else server.terminate()
    server.wait()
    if life == kills:
        assert server.returncode == 0
    else:
        server, client = start()
        value = client.ask(b"GET", name)
        if value is not None:
            model[name] = value
        server.kill()
        server.wait()
CHECK

section "another gateway, another key"
start
expect 5 "${gateway[@]}" --allow-simulated-tee
kill "$started"
wait "$started"
head -c 32 /dev/urandom >other.key
expect 1 "${gateway[@]}" --allow-simulated-tee --key-file other.key
check "it asks for the right key" grep -q -e "--key-file" err

section "a state that is damaged, cut or put back"
# Flips a bit of the newest generation of the folder $1, at byte $2 from its end.
flip() {
    local file at
    file=$(ls "$1"/gateway/state/state.*)
    at=$(($(stat -c %s "$file") - $2))
    python3 - "$file" "$at" <<'FLIP'
import sys

with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 1]))
FLIP
}
rm -r store
start --anchor anchor
for number in $(seq 20); do
    check "written" test "$(ask SET "name$number" "value$number")" = +OK
done
kill -KILL "$started"
wait "$started" || true
cp -r store whole
check "it is sound" "$traceless" gateway check --local store --anchor anchor
truncate -s +4096 store/gateway/state/state.*
check "zeros behind it are no damage" "$traceless" gateway check --local store --anchor anchor
flip store 4100
expect 1 "$traceless" gateway check --local store --json
check "what is lost is said" grep -q '"lost_entries": 1' out
expect 1 "${gateway[@]}" --allow-simulated-tee --anchor anchor
check "the error names the entry" grep -q "is damaged in entry" err
expect 1 "$traceless" gateway repair --local store
check "nothing is given up unasked" grep -q -e "--accept-loss" err
expect 1 "$traceless" gateway repair --local store --accept-loss
check "repaired" "$traceless" gateway check --local store
expect 1 "${gateway[@]}" --allow-simulated-tee --anchor anchor
check "the anchor knows what is lost" grep -q "the anchor" err
check "it can be made anew" "$traceless" gateway check --local store --anchor anchor --new-anchor
start --anchor anchor
check "all but the last is there" test "$(ask GET name19)" = value19
kill "$started"
wait "$started"
rm -r store
cp -r whole store
expect 1 "${gateway[@]}" --allow-simulated-tee --anchor anchor
check "a folder that was put back is refused" grep -q "older than it remembers" err
start
check "but not without an anchor" test "$(ask GET name20)" = value20
kill "$started"
wait "$started"

section "what the host sees of two users at a fixed rate"
user() {
    rm -rf user gateway.out
    "$traceless" gateway --local user --blocks 6000 --block-len 256 --resp "127.0.0.1:$port" \
        --rate fixed=2000/s --trace "$1.trace" --secret "$1.secret" --allow-simulated-tee \
        >gateway.out 2>gateway.err &
    started=$!
    for _ in $(seq 100); do
        grep -q RESP gateway.out && break
        sleep 0.1
    done
    python3 - "$port" "$1" <<'USER'
import random, socket, sys, time

client = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rwb")


def ask(*words):
    client.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
    client.flush()
    line = client.readline()
    if line[:1] == b"$" and int(line[1:]) >= 0:
        client.read(int(line[1:]) + 2)


end = time.monotonic() + 6
while time.monotonic() < end:
    if sys.argv[2] == "writer":
        ask(b"SET", b"%d" % random.randrange(2000), b"x" * 700)
    else:
        ask(b"GET", b"the same")
        time.sleep(0.01)
USER
    kill "$started"
    wait "$started"
}
user writer
user reader
expect 0 "$traceless" audit compare writer.trace reader.trace
check "nothing tells them apart" grep -q "verdict: pass" out
check "but what they asked for does" test "$(wc -c <writer.secret)" -ne "$(wc -c <reader.secret)"

section "a password, and strangers without it"
expect 2 "$traceless" gateway --local user --allow-simulated-tee --resp "0.0.0.0:$port"
check "it says what to do" grep -q "give --resp-password-file or --resp-users, or listen on" err
echo "open sesame" >password
"$traceless" gateway --local user --blocks 6000 --block-len 256 --resp "127.0.0.1:$port" \
    --resp-password-file password --allow-simulated-tee >gateway.out 2>gateway.err &
started=$!
for _ in $(seq 100); do
    grep -q RESP gateway.out && break
    sleep 0.1
done
check "silent and slow clients keep nobody out" \
    python3 "$lib/strangers.py" resp "$port" "open sesame"
kill "$started"
wait "$started"

section "users with rights, from a file"
cat >users <<'USERS'
user admin on >open-sesame ~* +@all
user reader on >another-one %R~own:* +@read +acl|whoami
USERS
"$traceless" gateway --local user --blocks 6000 --block-len 256 --resp "127.0.0.1:$port" \
    --resp-users users --allow-simulated-tee >gateway.out 2>gateway.err &
started=$!
for _ in $(seq 100); do
    grep -q RESP gateway.out && break
    sleep 0.1
done
ask() {
    python3 - "$port" "$@" <<'ASK'
import socket, sys
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
to.sendall("".join(line + "\r\n" for line in [*sys.argv[2:], "QUIT"]).encode())
print(to.makefile().read().replace("\n", " "))
ASK
}
ask "GET own:1" "AUTH reader open-sesame" >out
check "strangers have no rights" grep -qx -e "-NOAUTH .* -WRONGPASS .* +OK " out
ask "AUTH admin open-sesame" "SET own:1 blue" "SET other red" \
    "ACL SETUSER writer on >one-more-password %W~own:* +@write" "ACL SAVE" >out
check "an administrator" grep -qx "+OK +OK +OK +OK +OK +OK " out
ask "AUTH reader another-one" "ACL WHOAMI" "GET own:1" "GET other" "SET own:1 x" "ACL LIST" >out
denied="-NOPERM User reader has no permissions to run the"
key="-NOPERM No permissions to access a key"
check "a reader reads what it may" \
    test "$(cat out)" = "+OK \$6 reader \$4 blue $key $denied 'set' command $denied 'acl' \
command +OK "
kill "$started"
wait "$started"
check "users are written with hashes alone" bash -c "grep -q '^user writer on #' users &&
    ! grep -q -e one-more-password -e open-sesame users && [ \$(stat -c %a users) = 600 ]"
