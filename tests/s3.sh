#!/usr/bin/env bash
# S3, metrics and TLS in front of the cloud store, as the clients of others use them.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# No settings of whoever runs this: certificates are our own.
unset "${!AWS_@}"

python=python3
$python -c 'import boto3' 2>/dev/null || python=/usr/bin/python3
port=$((20000 + RANDOM % 12000))
url=http://127.0.0.1:$port
metrics=http://127.0.0.1:$((port + 1))
gateway=("$traceless" gateway --local store --blocks 120000 --block-len 1K --lambda 8
    --allow-simulated-tee --s3 "127.0.0.1:$port" --s3-domain localhost
    --metrics "127.0.0.1:$((port + 1))")

start() {
    "${gateway[@]}" "$@" >gateway.out 2>gateway.err &
    started=$!
    for _ in $(seq 100); do
        fetch "$metrics/healthz" >health 2>/dev/null && return
        sleep 0.1
    done
    cat gateway.err
    return 1
}

stop() {
    local code=0
    kill -TERM "$started"
    wait "$started" || code=$?
    check "SIGTERM is an orderly end" [ "$code" -eq 0 ]
}

s3() {
    "$python" "$lib/s3.py" "$url" "$key" "$secret" "$@"
}

section "keys of its own, for the owner only, with a warning"
start
check "ready" grep -q ready health
check "the warning" grep -q 'access keys of S3 lie beside' gateway.err
check "for the owner only" [ "$(stat -c %a store/gateway/s3-keys)" = 600 ]
read -r key secret < <(grep -v '^#' store/gateway/s3-keys)

section "boto3"
s3 fill
s3 all
s3 virtual
checks=$((checks + 1))

section "signatures: version 2, other bodies, other times, other headers"
check "by hand" "$python" "$lib/signatures.py" "$url" "$key" "$secret"

section "strangers keep nobody out"
check "silent and slow clients" "$python" "$lib/strangers.py" http "$port"
s3 check

section "metrics"
fetch "$metrics/metrics" >metrics
for line in 'traceless_queries_total [1-9]' 'traceless_tee_info{tee_protection="none"} 1' \
    'traceless_requests_total{kind="write",protocol="s3",result="ok"} [1-9]' \
    'traceless_request_seconds_bucket{kind="read",protocol="s3",le="10"} [1-9]'; do
    check "$line" grep -q "^$line" metrics
done
check "no names are told" bash -c '! grep -q kept metrics'
check "nothing else is there" bash -c "! python3 -c 'import sys, urllib.request as u
u.urlopen(sys.argv[1])' $metrics/other 2>/dev/null"

section "what was stored outlives kill -9, and SIGTERM"
kill -KILL "$started"
wait "$started" 2>/dev/null || true
start --log json
s3 check
stop
check "logs are JSON" python3 -c 'import json, sys
lines = [line for line in sys.stdin if line.startswith("{")]
assert len(lines) >= 4 and all("message" in json.loads(line)["fields"] for line in lines)' \
    <gateway.err
check "logs hold no secrets" bash -c "! grep -q -e '$secret' -e kept/ gateway.err"

section "keys with grants, over TLS"
if openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key \
    -out tls.pem -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null; then
    echo "$key $secret" >keys
    echo "reader secret-of-reader kept=ro own=rw  # no others" >>keys
    start --s3-keys keys --tls-cert tls.pem --tls-key tls.key
    url=https://127.0.0.1:$port
    s3 check tls.pem
    check "signatures over TLS" "$python" "$lib/signatures.py" "$url" "$key" "$secret" tls.pem
    check "strangers over TLS" "$python" "$lib/strangers.py" tls "$port"
    key=reader secret=secret-of-reader s3 policy tls.pem
    stop
    url=http://127.0.0.1:$port
    checks=$((checks + 2))
else
    leave_out "TLS, without the command openssl"
fi

section "networks are served to those only who say who they are"
everywhere=0.0.0.0:$((port + 2))
open=("$traceless" gateway --local store --allow-simulated-tee)
for options in "--metrics $everywhere" "--resp $everywhere" "--resp [::]:$((port + 2))" \
    "--s3 127.0.0.1:$port --resp [::ffff:0.0.0.0]:$((port + 2))"; do
    # shellcheck disable=SC2086  # words of a command
    expect 2 "${open[@]}" $options
    check "it says what to do: $options" grep -q "refusing to listen on .*; give --" err
done
echo "a password of metrics" >password
gateway+=(--metrics-password-file password)
gateway=("${gateway[@]/#127.0.0.1:$((port + 1))/$everywhere}")
health=http://127.0.0.1:$((port + 2))/healthz
"${gateway[@]}" >gateway.out 2>gateway.err &
started=$!
check "metrics for whoever gives the password" python3 - "$health" <<'ASK'
import sys, time, urllib.error, urllib.request

def status(password):
    request = urllib.request.Request(sys.argv[1])
    if password:
        request.add_header("Authorization", "Bearer " + password)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code

for _ in range(200):
    try:
        if status("a password of metrics") == 200:
            break
    except OSError:
        pass
    time.sleep(0.1)
assert status("a password of metrics") == 200
assert [status(other) for other in (None, "a password", "")] == [401] * 3
ASK
check "it is said that they are in the clear" grep -q "in the clear: $everywhere" gateway.err
stop
gateway=("${gateway[@]/#$everywhere/127.0.0.1:$((port + 1))}")
gateway=("${gateway[@]:0:${#gateway[@]}-2}")

section "restic"
start
export AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=$secret RESTIC_PASSWORD=password
export RESTIC_REPOSITORY=s3:$url/restic RESTIC_CACHE_DIR=$scratch/cache
mkdir -p tree/deep
head -c 3000000 /dev/urandom >tree/large
for i in $(seq 50); do echo "$i" >"tree/deep/$i"; done
restic init -q
restic backup -q tree
echo changed >tree/deep/7
restic backup -q tree
restic check -q --read-data
restic restore -q latest --target restored
check "restored" diff -r tree restored/tree

section "rclone, whose uploads have no hash, so over TLS"
stop
start --tls-cert tls.pem --tls-key tls.key
cat >rclone.conf <<CONF
[store]
type = s3
provider = Other
access_key_id = $key
secret_access_key = $secret
endpoint = https://127.0.0.1:$port
CONF
rclone=(rclone --config rclone.conf --ca-cert tls.pem)
"${rclone[@]}" sync tree store:rclone/tree
check "rclone finds no difference" "${rclone[@]}" check -q --download tree store:rclone/tree
check "all are listed" [ "$("${rclone[@]}" ls store:rclone | wc -l)" -eq 51 ]
rm tree/deep/1?
"${rclone[@]}" sync tree store:rclone/tree
check "what is gone is removed" [ "$("${rclone[@]}" ls store:rclone | wc -l)" -eq 41 ]
stop

section "s3cmd"
start
read -r key secret < <(grep -v '^#' store/gateway/s3-keys)
cat >s3cfg <<CONFIG
access_key = $key
secret_key = $secret
host_base = 127.0.0.1:$port
host_bucket = 127.0.0.1:$port
use_https = False
CONFIG
of_s3cmd() {
    check "s3cmd $1" s3cmd -c s3cfg --no-progress --quiet "$@"
}
head -c 6000000 /dev/urandom >large
mkdir -p tree/folder
: >tree/empty
seq 3000 >tree/folder/numbers
# It begins with the region "US", and signs anew.
of_s3cmd mb s3://commands
of_s3cmd put large s3://commands/large --multipart-chunk-size-mb=5
of_s3cmd cp s3://commands/large s3://commands/copy
of_s3cmd get s3://commands/copy back
check "an object in parts and its copy come back" cmp large back
of_s3cmd sync tree/ s3://commands/tree/
of_s3cmd sync s3://commands/tree/ tree-back/
check "a tree comes back" diff -r tree tree-back
of_s3cmd info s3://commands/copy
of_s3cmd info s3://commands
of_s3cmd modify --add-header=x-amz-meta-a:b s3://commands/copy
of_s3cmd del -r --force s3://commands
of_s3cmd rb s3://commands
stop
