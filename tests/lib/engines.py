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


def postgres(folder):
    port, user = free_port(), ORDINARY_USER if os.getuid() == 0 else None
    # A folder that the server's user can reach, which `folder` need not be.
    place = pathlib.Path(tempfile.mkdtemp(prefix="postgres.", dir="/var/tmp"))
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
    engine = Engine(url, port, [programs / "postgres", *where], user)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    atexit.register(engine.kill)
    return engine


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
    return {"redis": redis, "postgres": postgres, "minio": minio}[name](folder)
