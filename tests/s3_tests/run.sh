#!/usr/bin/env bash
# tests/s3_tests/run.sh FOLDER [MINIO]: runs ceph/s3-tests, of which FOLDER is a clone, against a
# gateway, and compares each result with expected.tsv. It takes ten minutes. With the program MINIO
# (go install github.com/minio/minio@latest) it runs them against that, and writes minio.tsv.
set -euo pipefail
folder=$(realpath "${1:?the folder of a clone of ceph/s3-tests}")
minio=${2:+$(realpath "$2")}
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

COMMIT=8f0ae7b4
# What is not offered as a whole: encryption by S3's keys, policies, logs, other storage classes,
# other accounts; and what AWS itself does not pass.
MARKS=$(printf 'not %s and ' fails_on_aws encryption sse_s3 bucket_encryption bucket_policy \
    bucket_logging cloud_transition cloud_restore iam_account storage_class lifecycle_transition)
MARKS=${MARKS% and }
here=$root/tests/s3_tests

section "the tests and what they need"
git clone --quiet "$folder" tests
git -C tests checkout --quiet "$COMMIT"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
port=$((20000 + RANDOM % 12000))
python3 "$here/configure.py" tests/s3tests.conf.SAMPLE "$port" conf keys
chmod 600 keys

if [ -n "$minio" ]; then
    section "a MinIO with their users"
    venv/bin/pip install --quiet --disable-pip-version-check minio
    start_service minio "S3 at" venv/bin/python "$here/minio_users.py" "$minio" store "$port" keys
else
    section "a gateway with a key for each of their users"
    start_service gateway "S3 at" "$traceless" gateway --local store --blocks 400000 \
        --block-len 1K --lambda 8 --allow-simulated-tee --durability process \
        --s3 "127.0.0.1:$port" --s3-keys keys
fi

section "all that are not marked for other servers"
(cd tests && S3TEST_CONF=$scratch/conf ../venv/bin/pytest --quiet --tb=no -p no:cacheprovider \
    --junit-xml "$scratch/results.xml" -m "$MARKS" s3tests/functional/test_s3.py) >out || true
if [ -n "$minio" ]; then
    python3 "$here/compare.py" results.xml "$here/expected.tsv" "$here/minio.tsv"
else
    check "each does what is expected" python3 "$here/compare.py" results.xml "$here/expected.tsv"
fi
