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
start_service server "S3 at" "$traceless" gateway --local server --blocks 400000 --lambda 8 \
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
# agrees PLANS [at-its-rate]: the requests of the server, and the queries of the gateway, with the
# best of PLANS; or the requests alone, at the rate of queries that there is.
agrees() {
    python3 - "$proxy" "$((port + 3))" "$@" <<'EOF'
import json
import re
import sys
import time
import urllib.request

proxy, metrics, plans, *at_its_rate = sys.argv[1:]
plan = json.load(open(plans))["plans"][0]
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


def planned(kind):
    return plan[f"engine_{kind}_per_second"] + plan[f"state_{kind}_per_second"]


expected = [planned("reads"), planned("writes"), plan["rate"]]
for attempt in range(8):
    before = counts()
    time.sleep(16)
    found = rates(before, counts())
    if at_its_rate:
        share = found[2] / plan["rate"]
        # Gateways that stand by ask for the log at their own times.
        reads = plan["engine_reads_per_second"] * share + plan["state_reads_per_second"]
        expected = [reads, planned("writes") * share, found[2]]
    print(found, expected)
    if all(abs(a / b - 1) <= 0.1 for a, b in zip(found, expected)):
        sys.exit(0)
sys.exit(1)
EOF
}

# Nodes that were never written are not read, so each path is written once first, on demand.
fill() {
    for number in $(seq 9000); do
        echo "set name$number value"
    done | redis-cli -p "$((port + 2))" >answers
    check "values are kept" test "$(grep -c OK answers)" -eq 9000
}

start_gateway "$port" --cache 0 --blocks 20480 --block-len 1K --lambda 4
fill
stop_service
read -r -a options <<<"$options"
start_gateway "$proxy" "${options[@]}"
check "requests and queries agree with the plan" agrees plans
stop_service

section "so it does with a gateway that stands by, and the state in the same server"
"${plan[@]}" --data 16M --requests 80 --latency 40 --lambda 4 --cache 0 --standbys 1 --json >plans
options=$(python3 -c 'import json; print(json.load(open("plans"))["plans"][0]["options"])')
read -r -a options <<<"$options"
head -c 32 /dev/urandom >key
# The gateway $1, with its server at the port $2.
start_leased() {
    local s3="endpoint=http://127.0.0.1:$2&region=us-east-1"
    start_service "$1" "$3" "$traceless" gateway --state "s3://tree/state?$s3" --key-file key \
        --store "s3://tree/leased?$s3" --allow-simulated-tee "${@:4}"
}
served=(--resp "127.0.0.1:$((port + 2))" --metrics "127.0.0.1:$((port + 3))")
start_leased gateway "$port" RESP "${served[@]}" --cache 0 --blocks 20480 --block-len 1K --lambda 4
fill
stop_service
start_leased gateway "$proxy" RESP "${served[@]}" "${options[@]}"
leased=$started
start_leased standby "$proxy" "standing by" --resp "127.0.0.1:$((port + 4))" "${options[@]}"
check "requests agree with the plan" agrees plans at-its-rate
stop_service
kill "$leased"
wait "$leased"
