#!/usr/bin/env bash
# What `traceless plan cloud` says of requests and rates, beside what an S3 server gets.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
proxy=$((port + 1))
plan=("$traceless" plan cloud --engine s3)
python=python3
$python -c 'import boto3' 2>/dev/null || python=/usr/bin/python3

section "plans are refused where no store carries the load, and else sorted by price"
expect 2 "${plan[@]}" --data 10G --requests 1000000
check "the reason is named" grep -q "queries a second" err
expect 2 "${plan[@]}" --data 10G --requests 100 --latency 5000
expect 2 "${plan[@]}" --data 0 --requests 100
expect 2 "${plan[@]}" --data 10G --requests 100 --read-price -1
"${plan[@]}" --data 10G --requests 100 >text
check "the first line is a command" grep -q "^traceless gateway --blocks 13107200 .*--rate" text
check "prices are in it" grep -q "dollars a month" text
"${plan[@]}" --data 10G --value 16K --requests 20 --json >all
check "the cheapest is first" python3 -c '
import json
plans = json.load(open("all"))["plans"]
totals = [plan["dollars_per_month"]["total"] for plan in plans]
assert len(totals) > 3 and totals == sorted(totals), totals
'

section "a server gets as many requests as planned, within a tenth"
python3 -c "
import sys
sys.path.insert(0, '$lib')
import engines
print(engines.KEY, engines.SECRET)
" >keys
chmod 600 keys
read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY <keys
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
start_service server "S3 at" "$traceless" gateway --local server --blocks 60000 --lambda 8 \
    --allow-simulated-tee --enclave inside --durability process --s3 "127.0.0.1:$port" \
    --s3-keys keys
$python -c "
import sys
sys.path.insert(0, '$lib')
import engines
engines.create_bucket($port)
"
start_service proxy "proxy at" python3 "$lib/counting_proxy.py" "$proxy" "$port"
"${plan[@]}" --data 16M --requests 80 --latency 40 --lambda 4 --cache 0 --json >plans
options=$(python3 -c 'import json; print(json.load(open("plans"))["plans"][0]["options"])')
start_gateway() {
    start_service gateway RESP "$traceless" gateway --local own --allow-simulated-tee \
        --store "s3://tree/plan?endpoint=http://127.0.0.1:$1&region=us-east-1" "${@:2}" \
        --durability process --resp "127.0.0.1:$((port + 2))" --metrics "127.0.0.1:$((port + 3))"
}
# Nodes that were never written are not read, so each path is written once first, on demand.
start_gateway "$port" --cache 0 --blocks 20480 --block-len 1K --lambda 4
for number in $(seq 9000); do
    echo "set name$number value"
done | redis-cli -p "$((port + 2))" >answers
check "values are kept" test "$(grep -c OK answers)" -eq 9000
stop_service
read -r -a options <<<"$options"
start_gateway "$proxy" "${options[@]}"
check "requests and queries agree with the plan" python3 - "$proxy" "$((port + 3))" <<'EOF'
import json
import re
import sys
import time
import urllib.request

proxy, metrics = sys.argv[1:]
plan = json.load(open("plans"))["plans"][0]
assert plan["together"] > 1 and plan["layers"] > 1, plan


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as reply:
        return reply.read().decode()


def counts():
    requests = json.loads(fetch(proxy, "/counts"))
    queries = re.search(r"^traceless_queries_total (\d+)", fetch(metrics, "/metrics"), re.M)
    return requests["get"], requests["put"] + requests["list"], int(queries[1]), time.monotonic()


def rates(before, after):
    seconds = after[3] - before[3]
    return [(b - a) / seconds for a, b in zip(before[:3], after[:3])]


planned = [plan["engine_reads_per_second"], plan["engine_writes_per_second"], plan["rate"]]
for attempt in range(8):
    before = counts()
    time.sleep(16)
    found = rates(before, counts())
    print(found, planned)
    if all(abs(a / b - 1) <= 0.1 for a, b in zip(found, planned)):
        sys.exit(0)
sys.exit(1)
EOF
stop_service
