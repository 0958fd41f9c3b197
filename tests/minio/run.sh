#!/usr/bin/env bash
# The tree of a cloud store in MinIO, which is killed like all other programs. Called by
# ./test minio.
#
# MinIO is built from its sources: some minutes, and a Go as new as they want.
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

version=v0.0.0-20260212201848-7aac2a2c5b7c
programs=$root/target/tools/minio
if [ ! -x "$programs/minio" ]; then
    command -v go >/dev/null || fail "Go 1.24 or newer is needed (package golang-go, or newer)"
    GOBIN=$programs go install "github.com/minio/minio@$version"
fi
PATH=$programs:$PATH

section "no answered write is lost by killing gateway, host, enclave and MinIO"
mkdir killed
check "MinIO and its checker agree" \
    python3 "$lib/kills.py" "$traceless" "$scratch/killed" "${KILLS:-12}" 3 minio
