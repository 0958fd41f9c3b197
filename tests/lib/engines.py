"""Servers of storage engines for tests: each can be killed, and started again with its data."""

import atexit
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

START_PATIENCE = 60
# Root may not run PostgreSQL.
ORDINARY_USER = 65534
KEY, SECRET = "TLTESTS", "secret-of-the-tests"


def free_port():
    """A port that no connection is given while its server is away: the system gives higher ones."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Engine:
    """A server that keeps its data in a folder."""

    def __init__(self, url, port, command, user=None):
        self.url, self.port, self.command, self.user = url, port, command, user
        self.start()

    def url_of(self, store):
        """The URL of another store at the server."""
        if "/a/prefix?" in self.url:
            return self.url.replace("/a/prefix?", f"/{store}?")
        return f"{self.url}?store={store}"

    def start(self):
        end = time.monotonic() + START_PATIENCE
        while time.monotonic() < end:
            self.spawn()
            # Processes of a PostgreSQL that was killed hold its memory for a moment: the next one
            # ends then.
            while self.process.poll() is None and time.monotonic() < end:
                if self.listens():
                    time.sleep(0.05)
                    if self.process.poll() is None:
                        return
                time.sleep(0.02)
        raise SystemExit(f"{self.command[0]} did not start")

    def spawn(self):
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.command, stdin=null, stdout=null, stderr=null, user=self.user, group=self.user
        )
        # Also where a check fails, no server stays.
        atexit.register(self.kill)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


def redis(folder):
    port = free_port()
    durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    return Engine(f"redis://127.0.0.1:{port}/", port, ["redis-server", *where, *durable])


class Watched:
    """A primary, two replicas, and three sentinels that put a replica in the primary's place."""

    def __init__(self, folder):
        ports = [free_port() for _ in range(3)]
        self.servers = [self.server(folder, port, ports[0]) for port in ports]
        self.sentinels = [self.sentinel(folder, ports[0]) for _ in range(3)]
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.place = f"redis+sentinel://{places}/group?replicas=1"
        self.url, self.failovers = self.place, []
        self.wait(lambda: self.primary() and all(self.knows_all(each) for each in self.sentinels))

    @staticmethod
    def server(folder, port, primary):
        place = folder / str(port)
        place.mkdir()
        # A server notes here which one it follows, as sentinels say.
        file = place / "redis.conf"
        file.write_text(
            f'bind 127.0.0.1\nport {port}\ndir {place}\nsave ""\n'
            "appendonly yes\nappendfsync always\nrepl-diskless-sync-delay 0\n"
            + ("" if port == primary else f"replicaof 127.0.0.1 {primary}\n")
        )
        return Engine("", port, ["redis-server", str(file)])

    @staticmethod
    def sentinel(folder, primary):
        port = free_port()
        file = folder / f"sentinel{port}.conf"
        file.write_text(
            f"bind 127.0.0.1\nport {port}\ndir {folder}\n"
            f"sentinel monitor group 127.0.0.1 {primary} 2\n"
            "sentinel down-after-milliseconds group 1000\n"
            "sentinel failover-timeout group 2000\n"
        )
        return Engine("", port, ["redis-server", str(file), "--sentinel"])

    @staticmethod
    def ask(port, *words):
        command = ["redis-cli", "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.split()

    def url_of(self, store):
        return f"{self.place}&store={store}"

    def knows_all(self, sentinel):
        lines = self.ask(sentinel.port, "sentinel", "master", "group")
        state = dict(zip(lines, lines[1:]))
        return (state.get("num-slaves"), state.get("num-other-sentinels")) == ("2", "2")

    def primary(self):
        """The server that most sentinels name, if it has both replicas."""
        for server in self.servers:
            lines = self.ask(server.port, "info", "replication")
            if "role:master" in lines and "connected_slaves:2" in lines:
                if sum("state=online" in line for line in lines) == 2 and self.is_named(server):
                    return server
        return None

    def is_named(self, server):
        question = ("sentinel", "get-master-addr-by-name", "group")
        answers = [self.ask(each.port, *question) for each in self.sentinels]
        return answers.count(["127.0.0.1", str(server.port)]) > len(answers) / 2

    def wait(self, done):
        end = time.monotonic() + START_PATIENCE
        while not (result := done()):
            if time.monotonic() > end:
                raise SystemExit("the sentinels and their servers do not agree")
            time.sleep(0.05)
        return result

    def kill(self):
        """Ends the primary at once, and waits until another server is in its place."""
        self.victim = self.wait(self.primary)
        self.victim.kill()
        begin = time.monotonic()
        rest = [server for server in self.servers if server is not self.victim]
        self.wait(lambda: any(self.is_named(server) for server in rest))
        self.failovers.append(time.monotonic() - begin)

    def start(self):
        """Starts the victim again, and waits until it follows the new primary."""
        self.victim.start()
        self.wait(self.primary)


def postgres(folder):
    port, user = free_port(), ORDINARY_USER if os.getuid() == 0 else None
    # A folder that the server's user can reach, which `folder` need not be.
    place = pathlib.Path(tempfile.mkdtemp(prefix="postgres.", dir="/var/tmp"))
    # At the end this comes after the server's own, which is registered later.
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    if user:
        os.chown(place, user, user)
    data = place / "data"
    installed = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    found = [shutil.which("initdb")] + [str(folder / "initdb") for folder in installed]
    programs = pathlib.Path(next(path for path in found if path)).resolve().parent
    made = [programs / "initdb", "--auth", "trust", "--username", "postgres", "-D", data]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=user, group=user, cwd="/")
    where = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", place]
    url = f"postgres://postgres@127.0.0.1:{port}/postgres"
    return Engine(url, port, [programs / "postgres", *where], user)


def s3(folder, traceless):
    port = free_port()
    keys = folder / "keys"
    keys.write_text(f"{KEY} {SECRET}\n")
    tree = ["--local", str(folder / "store"), "--blocks", "60000", "--lambda", "8"]
    options = ["--allow-simulated-tee", "--enclave", "inside", "--s3-keys", str(keys)]
    command = [traceless, "gateway", *tree, *options, "--s3", f"127.0.0.1:{port}"]
    engine = Engine(bucket_url(port), port, command)
    create_bucket(port)
    return engine


def minio(folder):
    port = free_port()
    os.environ.update(MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET)
    command = ["minio", "server", "--quiet", "--address", f"127.0.0.1:{port}"]
    engine = Engine(bucket_url(port), port, [*command, str(folder / "data")])
    create_bucket(port)
    return engine


def bucket_url(port):
    return f"s3://tree/a/prefix?endpoint=http://127.0.0.1:{port}&region=us-east-1"


def create_bucket(port):
    """Creates the bucket, and names its keys for all clients."""
    import boto3

    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    os.environ.update(zip(names, (KEY, SECRET, "us-east-1")))
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket="tree")


def start(name, folder, traceless):
    """Starts the server of an engine in a folder of its own; none for `file`."""
    if name == "file":
        return None
    folder = folder / "engine"
    folder.mkdir()
    if name == "s3":
        return s3(folder, traceless)
    engines = {"redis": redis, "sentinel": Watched, "postgres": postgres, "minio": minio}
    return engines[name](folder)
