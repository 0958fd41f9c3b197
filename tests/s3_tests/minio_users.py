"""Makes the users of ceph/s3-tests at a MinIO, and starts it until the process is killed.

minio_users.py MINIO FOLDER PORT KEYS
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import minio
import minio.credentials

program, folder, port, keys = sys.argv[1:]
with open(keys) as lines:
    users = [line.split() for line in lines]
(root, secret), *rest = users
address = f"127.0.0.1:{port}"
server = subprocess.Popen(
    ["setpriv", "--pdeathsig", "KILL", program, "server", "--quiet", "--address", address, folder],
    env={**os.environ, "MINIO_ROOT_USER": root, "MINIO_ROOT_PASSWORD": secret},
)
for _ in range(100):
    try:
        urllib.request.urlopen(f"http://{address}/minio/health/ready")
        break
    except (urllib.error.URLError, ConnectionError):
        time.sleep(0.2)
credentials = minio.credentials.StaticProvider(root, secret)
admin = minio.MinioAdmin(endpoint=address, credentials=credentials, secure=False)
for key, own in rest:
    admin.user_add(key, own)
    admin.policy_set("readwrite", user=key)
print(f"S3 at {address}", flush=True)
sys.exit(server.wait())
