"""Kills the parts of a cloud store at random moments, and looks for lost writes.

usage: kills.py TRACELESS FOLDER KILLS [SEED [ENGINE [OPTION OF THE GATEWAY]...]]

The parts are gateway, hosts, enclaves, and the server of the storage engine: of `redis`, `postgres`
or `s3`, or none for `file`; of `sentinel` it is the primary, and a replica takes its place while it
is away. No operation may take longer than SLOWEST_MAX seconds [default: 60]. The tree is divided
among HOSTS hosts [default: 1]. If it is at FIRST_HOSTS hosts first, each start of the gateway adds
one, and trees move there. With GATEWAYS above 1 [default: 1] their state is in the engine, and all
but one of them stand by.

A client writes, reads and removes values all the while, and keeps a model beside: under each name
what was answered last or, where no answer came, all that it may be. Whatever is read must be among
that, and is all that it may be from then on. Ends with an error if it is not.
"""

import atexit
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import engines

TRACELESS, FOLDER, KILLS = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
ENGINE = sys.argv[5] if len(sys.argv) > 5 else "file"
OPTIONS = sys.argv[6:]
HOSTS = int(os.environ.get("HOSTS", "1"))
FIRST_HOSTS = int(os.environ.get("FIRST_HOSTS", HOSTS))
GATEWAYS = int(os.environ.get("GATEWAYS", "1"))
LEASE = 1
TREE = ["--blocks", "6000", "--block-len", "256", "--lambda", "4", "--allow-simulated-tee"]
# The host's, another at each start: no layer in memory, the root, the whole tree.
CACHES = ["0", "1M", "64M"]
NAMES = 400
VALUE_LEN_MAX = 1500
START_PATIENCE = 60
END_PATIENCE = 10
# The exit code of a gateway that another one has replaced.
FENCED = 5
SLOWEST_MAX = float(os.environ.get("SLOWEST_MAX", START_PATIENCE))
# Seconds of the slowest operation, with its repetitions.
SLOWEST = 0.0


class Process:
    """A program that is started again whenever it was killed."""

    def __init__(self, words, command):
        self.words, self.command = words, command
        self.errors = open(FOLDER / f"{command[1]}.err", "ab")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=self.errors
        )
        # Also where a check fails, no program stays.
        atexit.register(self.process.kill)
        line = self.process.stdout.readline().decode()
        if not any(word in line for word in self.words):
            why = pathlib.Path(self.errors.name).read_text()[-500:]
            raise SystemExit(f"{self.command[1]} did not start: {why}")

    def kill(self):
        self.process.kill()
        self.process.wait()


def children(process):
    """The processes that any thread of a process has started."""
    found = []
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except FileNotFoundError:
            pass  # The thread has ended meanwhile.
    return found


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=START_PATIENCE)
        self.file = self.socket.makefile("rwb")

    def ask(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the gateway is gone")
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if line[:1] == b"-":
            raise ConnectionError(line.decode())
        return line[1:-2]


class Killer(threading.Thread):
    """Kills one of the parts, again and again."""

    def __init__(self, hosts, later_hosts, gateways, engine, rng):
        super().__init__()
        self.later_hosts = later_hosts
        self.hosts, self.gateways, self.engine, self.rng = hosts, gateways, engine, rng
        self.counts = {"gateway": 0, "host": 0, "enclave": 0}
        if engine:
            self.counts["engine"] = 0
        self.failure = None

    def run(self):
        try:
            while sum(self.counts.values()) < KILLS:
                time.sleep(self.rng.choice([0.01, 0.05, 0.2, 0.4]) * self.rng.random())
                self.kill_one()
        except BaseException as error:  # The client must not wait for ever.
            self.failure = error

    def kill_one(self):
        parts = list(self.counts) + ["gateway"] * (2 * (GATEWAYS - 1))
        victim, host = self.rng.choice(parts), self.rng.choice(self.hosts)
        if victim == "enclave":
            enclaves = children(host.process)
            if not enclaves:
                return
            for enclave in enclaves:
                subprocess.run(["kill", "-KILL", str(enclave)], stderr=subprocess.DEVNULL)
        elif victim == "engine":
            self.engine.kill()
            time.sleep(self.rng.random() / 2)
            self.engine.start()
        else:
            process = host if victim == "host" else self.rng.choice(self.gateways)
            process.kill()
            if victim == "host":
                process.command[-1] = self.rng.choice(CACHES)
            elif self.later_hosts:
                process.command += self.later_hosts.pop(0)
            process.start()
            if victim == "gateway" and GATEWAYS > 1:
                # Another one may take its place, or not yet.
                time.sleep(3 * LEASE * self.rng.random())
        self.counts[victim] += 1


def main():
    rng = random.Random(SEED)
    state = ["--state", str(FOLDER / "gateway")]
    engine = engines.start(ENGINE, FOLDER, TRACELESS)
    if GATEWAYS > 1:
        key = FOLDER / "key"
        key.write_bytes(rng.randbytes(32))
        state = ["--state", engine.url_of("state"), "--lease", str(LEASE), "--key-file", str(key)]
    hosts, addresses = [], []
    for number in range(HOSTS):
        store, listen = FOLDER / f"host{number}", f"127.0.0.1:{engines.free_port()}"
        if engine:
            tree = ["--store", engine.url, "--state", str(store)]
        else:
            tree = ["--store", f"file:{store}"]
        where = ["--listen", listen, *tree, "--cache", CACHES[-1]]
        hosts.append(Process(["host at"], [TRACELESS, "host", *where]))
        addresses.append(["--host", listen, "--host-cert", str(store / "host.pem")])
    state += sum(addresses[:FIRST_HOSTS], [])
    ports = [engines.free_port() for _ in range(GATEWAYS)]
    gateway = [TRACELESS, "gateway", *state, *TREE, *OPTIONS, "--resp"]
    words = ["RESP", "standing by"]
    gateways = [Process(words, [*gateway, f"127.0.0.1:{port}"]) for port in ports]
    later_hosts = addresses[FIRST_HOSTS:]
    killer = Killer(hosts, later_hosts, gateways, engine, random.Random(SEED + 1))
    model, answered, client = {}, {"SET": 0, "GET": 0, "DEL": 0}, None
    killer.start()
    last = False
    while not last:
        # Once more when nobody is killed any more, so that each name is looked at.
        last = not killer.is_alive()
        names = range(NAMES) if last else (rng.randrange(NAMES) for _ in range(50))
        for name in [b"name %d" % number for number in names]:
            try:
                client = step(rng, model, answered, client, ports, name, "GET" if last else None)
            except SystemExit as error:
                # That a part did not start again is why there is no answer.
                raise killer.failure or error
    if killer.failure:
        raise killer.failure
    for process in [*gateways, *hosts]:
        process.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    codes = {process.process.wait() for process in [*gateways, *hosts]}
    if time.monotonic() - began > END_PATIENCE:
        raise SystemExit("the gateway waited for a host that is gone")
    # On a busy machine a lease of a second may pass to the other gateway, and then the first ends.
    log = (FOLDER / "gateway.err").read_text()
    is_passed = "is lost to another gateway" in log or "another gateway has taken over" in log
    if codes not in ({0}, {0, FENCED} if GATEWAYS > 1 and is_passed else {0}):
        raise SystemExit(f"gateway and hosts ended with {codes}: {log[-2000:]}")
    if engine:
        engine.kill()
    moves = (FOLDER / "gateway.err").read_text().count("a tree has moved")
    if FIRST_HOSTS < HOSTS and (later_hosts or moves == 0):
        raise SystemExit(f"{moves} trees have moved, and {len(later_hosts)} hosts were not added")
    if SLOWEST > SLOWEST_MAX:
        raise SystemExit(f"an operation took {SLOWEST:.1f} s")
    failovers = [f"{seconds:.1f} s" for seconds in getattr(engine, "failovers", [])]
    if failovers:
        print(f"a replica took the place of the primary after {', '.join(failovers)}")
    print(f"kills {killer.counts}, answered {answered}, slowest {SLOWEST:.1f} s, no write lost")


def connect(ports):
    """A client of the gateway that serves."""
    for port in ports[1:]:
        try:
            return Client(port)
        except OSError:
            pass
    return Client(ports[0])


def step(rng, model, answered, client, ports, name, verb):
    """One operation, again until it is answered. Returns the client to go on with."""
    global SLOWEST
    verb = verb or rng.choice(["SET", "SET", "SET", "GET", "GET", "DEL"])
    may_be = model.setdefault(name, {None})
    new = rng.randbytes(rng.randrange(VALUE_LEN_MAX)) if verb == "SET" else None
    begin = time.monotonic()
    while True:
        try:
            client = client or connect(ports)
            if verb == "GET":
                value = client.ask(b"GET", name)
                if value not in may_be:
                    raise SystemExit(f"{name} holds what it cannot hold (seed {SEED})")
                model[name] = {value}
            else:
                # From here on it may have happened.
                may_be.add(new)
                client.ask(verb.encode(), name, *([new] if verb == "SET" else []))
                model[name] = {new}
            answered[verb] += 1
            SLOWEST = max(SLOWEST, time.monotonic() - begin)
            return client
        except OSError as error:
            client = None
            if time.monotonic() > begin + START_PATIENCE:
                raise SystemExit(f"no answer for {START_PATIENCE} s: {error}") from error
            time.sleep(0.02)


main()
