#!/usr/bin/env bash
# Anchors of volumes in Redis, at a server of WebDAV with TLS, and at a counter of a TPM: older
# images, older anchors, places that are away, and two machines with one anchor.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
https_port=$((port + 1))
s3_port=$((port + 2))
# The program that speaks S3 here.
gateway=${GATEWAY:-$traceless}

make() {
    expect "$1" volume create "$2" --force --unfilled --size 1M --key-file key --anchor "$3"
}

# Writes a block through a server, and flushes.
step() {
    serve "$1" --anchor "$2"
    nbd write 4096 "$3"
    nbd flush
    stop_server
}

# An opening that must fail with the exit code $1, saying $2, and change nothing: image, anchor.
refused() {
    local before
    before=$(sha256_of "$3")
    expect "$1" volume serve "$3" --key-file key --socket socket --anchor "$4"
    check "it says why: $(cat err)" grep -q "$2" err
    check "and nothing is written" [ "$(sha256_of "$3")" = "$before" ]
}

# What every place must do. Image, anchor.
lives() {
    local image=$1 anchor=$2
    make 0 "$image" "$anchor"
    expect 4 volume create new --unfilled --size 1M --key-file key --anchor "$anchor"
    check "an anchor is not taken twice" [ ! -e new ]
    step "$image" "$anchor" 1
    cp "$image" older
    step "$image" "$anchor" 2
    cp "$image" newer
    cp older "$image"
    refused 1 "went back" "$image" "$anchor"
    cp newer "$image"
    expect 0 volume check "$image" --key-file key --anchor "$anchor"
    expect 0 volume grow "$image" --size 2M --key-file key --anchor "$anchor"
    expect 4 volume check newer --key-file key --anchor "$anchor"
    step "$image" "$anchor" 3
    serve "$image" --anchor "$anchor" --read-only
    nbd verify 4096 3
    stop_server
}

# Two machines with copies of one image: the later opening goes on, the other one ends. Image,
# anchor, socket of the first.
one_of_two() {
    local image=$1 anchor=$2 first code=0
    serve "$image" --anchor "$anchor"
    first=$server
    nbd write 4096 4
    nbd flush
    cp "$image" copy
    mv socket first-socket
    serve copy --anchor "$anchor"
    expect 0 python3 "$lib/nbd.py" first-socket write 4096 9
    expect 1 python3 "$lib/nbd.py" first-socket flush
    expect 0 python3 "$lib/nbd.py" first-socket write-error 0
    nbd write 4096 5
    nbd flush
    stop_server
    kill -TERM "$first"
    wait "$first" || code=$?
    check "the first ends with 5, not $code" [ "$code" -eq 5 ]
    refused 1 "went back" "$image" "$anchor"
    step copy "$anchor" 6
    cp copy "$image"
}

lacks() {
    ! grep -q "$1" "$2"
}

section "Redis"
start_redis() {
    start_service redis '.*Ready' redis-server --port "$port" --bind 127.0.0.1 \
        --save '' --appendonly no --requirepass "se%cret" --dbfilename dump.rdb
    redis=$started
}

ask() {
    REDISCLI_AUTH="se%cret" redis-cli -p "$port" "$@"
}

stop_redis() {
    ask shutdown "$1" || true
    wait "$redis" || true
}

start_redis
anchor=redis://:se%25cret@127.0.0.1:$port/a/photos
lives photos "$anchor"
one_of_two photos "$anchor"
export TRACELESS_ANCHOR_PASSWORD=se%cret
step photos "redis://127.0.0.1:$port/a/photos" 7
export -n TRACELESS_ANCHOR_PASSWORD
refused 4 "NOAUTH" photos "redis://localhost:$port/a/photos"
refused 4 "WRONGPASS" photos "redis://:hunter2@localhost:$port/a/photos"
check "no password is shown" lacks hunter2 err
refused 4 "no anchor" photos "$anchor/none"
refused 4 "rediss:" photos "redis://192.0.2.1/photos"
make 0 other "$anchor/other"
refused 4 "does not belong" other "$anchor"

section "Redis: a server that is away, for a moment and for longer"
serve photos --anchor "$anchor"
nbd write 8192 1
ask save >/dev/null
stop_redis nosave
(sleep 1 && exec redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
    --requirepass "se%cret" --dbfilename dump.rdb >redis.out) &
redis=$!
nbd flush
nbd write 12288 1
ask save >/dev/null
stop_redis nosave
expect 1 nbd flush
start_redis
nbd flush
stop_server
stop_redis save
refused 4 "cannot be reached" photos "$anchor"
start_redis

section "Redis: an anchor that was put back, or is lost"
cp photos newer
ask save >/dev/null
cp dump.rdb older.rdb
step photos "$anchor" 8
stop_redis nosave
cp older.rdb dump.rdb
start_redis
refused 1 "the anchor went back" photos "$anchor"
expect 0 volume check photos --key-file key --anchor "$anchor" --new-anchor
step photos "$anchor" 9
refused 1 "the image went back" newer "$anchor"
ask del a/photos >/dev/null
refused 4 "no anchor" photos "$anchor"
expect 0 volume check photos --key-file key --anchor "$anchor" --new-anchor
step photos "$anchor" 10
ask set a/photos letter >/dev/null
refused 4 "does not belong" photos "$anchor"
expect 4 volume check photos --key-file key --anchor "$anchor" --new-anchor
check "what is no anchor stays" [ "$(ask get a/photos)" = letter ]
stop_redis nosave

section "WebDAV with TLS"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=CA:FALSE -days 2 \
    -keyout tls.key -out tls.pem 2>openssl.err
mkdir -m 777 dav lock
printf 'user:%s\n' "$(openssl passwd -apr1 secret)" >users
modules=/usr/lib/apache2/modules
cat >apache.conf <<END
ServerRoot $scratch
ServerName localhost
Listen 127.0.0.1:$https_port
PidFile apache.pid
ErrorLog apache.log
$(for module in mpm_event authn_core authn_file authz_core authz_user auth_basic dav dav_fs \
    ssl headers; do
    echo "LoadModule ${module}_module $modules/mod_$module.so"
done)
$([ "$(id -u)" -ne 0 ] || echo "User nobody")
DocumentRoot $scratch/dav
DavLockDB $scratch/lock/db
SSLEngine on
SSLCertificateFile tls.pem
SSLCertificateKeyFile tls.key
<Directory $scratch/dav>
    Dav On
    AuthType Basic
    AuthName anchors
    AuthUserFile users
    Require valid-user
</Directory>
<LocationMatch ignores>
    RequestHeader unset If-Match
    RequestHeader unset If-None-Match
</LocationMatch>
END
chmod 755 . && chmod 644 users
# In one process: its children would outlive it.
apache2 -X -f "$scratch/apache.conf" &
apache=$!
until [ -s apache.pid ]; do
    kill -0 "$apache" || fail "apache2 has ended: $(cat apache.log)"
    sleep 0.05
done
export SSL_CERT_FILE=$scratch/tls.pem
login=user:secret
anchor=https://$login@localhost:$https_port/photos
lives photos "$anchor"
one_of_two photos "$anchor"
login=user:hunter2
refused 4 "status 401" photos "https://$login@localhost:$https_port/photos"
check "no password is shown" lacks hunter2 err
refused 4 "no anchor" photos "$anchor.none"
cp dav/photos older-anchor
step photos "$anchor" 8
cp older-anchor dav/photos
refused 1 "the anchor went back" photos "$anchor"
make 4 new "$anchor.ignores"
check "a server that ignores conditions is refused" grep -q "ignores if-" err
export SSL_CERT_FILE=$scratch/key
refused 4 "root" photos "$anchor"
unset SSL_CERT_FILE
refused 4 "certificate" photos "$anchor"

section "S3, of a gateway"
if "$gateway" gateway --help >/dev/null 2>&1; then
    start_service gateway S3 "$gateway" gateway --local store --blocks 20000 --block-len 1K \
        --lambda 8 --allow-simulated-tee --s3 "127.0.0.1:$s3_port"
    read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY < <(grep -v '^#' store/gateway/s3-keys)
    export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    python=python3
    $python -c 'import boto3' 2>/dev/null || python=/usr/bin/python3
    check "a bucket" "$python" -c 'import boto3, sys
boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1").create_bucket(Bucket="some")
' "http://127.0.0.1:$s3_port"
    anchor="s3://some/a/photos?endpoint=http://127.0.0.1:$s3_port"
    lives photos "$anchor"
    one_of_two photos "$anchor"
    refused 4 "no anchor" photos "s3://some/none?endpoint=http://127.0.0.1:$s3_port"
    AWS_SECRET_ACCESS_KEY=hunter2
    refused 4 "status 403" photos "$anchor"
    check "no password is shown" lacks hunter2 err
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    refused 2 "AWS_ACCESS_KEY_ID" photos "$anchor"
    stop_service
else
    leave_out "S3: this program has no gateway"
fi

section "a counter of a TPM"
start_tpm() {
    mkdir -p tpm
    swtpm socket --tpm2 --tpmstate dir=tpm --server type=unixio,path=tpm.socket \
        --ctrl type=unixio,path=tpm.control --flags not-need-init,startup-clear \
        >tpm.out 2>&1 &
    tpm=$!
    until [ -S tpm.socket ]; do sleep 0.05; done
}

stop_tpm() {
    kill "$tpm"
    wait "$tpm" || true
    rm -f tpm.socket tpm.control
}

start_tpm
anchor=tpm2:0x1800016,device=tpm.socket,file=record
lives photos "$anchor"
# The record alone, put back with the image, is not enough.
cp photos older
cp record older-record
step photos "$anchor" 4
cp photos newer
cp older photos
refused 1 "went back" photos "$anchor"
cp record newer-record
cp older-record record
refused 1 "the TPM has counted" photos "$anchor"
cp newer photos
refused 1 "the TPM has counted" photos "$anchor"
cp newer-record record
step photos "$anchor" 5
# Each flush counts only if that is wanted.
for every in "" ,every=flush; do
    serve photos --anchor "$anchor$every"
    nbd write 4096 6
    cp record before
    nbd flush
    cp photos flushed
    cp record after
    kill_server
    cp before record
    if [ -n "$every" ]; then
        refused 1 "the TPM has counted" photos "$anchor"
        cp after record
    fi
    step photos "$anchor" 7
done
expect 2 volume serve photos --key-file key --socket socket --anchor tpm2:photos
refused 4 "cannot be reached" photos "tpm2:0x1800016,device=none,file=record"
refused 4 "no such counter" photos "tpm2:0x1800017,device=tpm.socket,file=record"
stop_tpm
cp -r tpm older-tpm
start_tpm
step photos "$anchor" 8
step photos "$anchor" 9
stop_tpm
rm -r tpm
mv older-tpm tpm
start_tpm
refused 1 "the anchor went back" photos "$anchor"
expect 0 volume check photos --key-file key --anchor "$anchor" --new-anchor
step photos "$anchor" 10
stop_tpm
