#!/usr/bin/env bash
# What operators of gateways begin with: the compose file, manifests for Kubernetes, alerts and the
# dashboard. No container runs: its commands do, with other names and ports.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
dist=$root/dist
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check kubernetes-validate==1.37.0 PyYAML
places=("$lib/operations.py" "$dist" "$port" "$scratch")

section "manifests are valid, and start what the compose file starts"
check "Kubernetes takes the manifests" \
    venv/bin/kubernetes-validate --strict "$dist/kubernetes/traceless.yaml"
check "both have the same command" venv/bin/python "${places[@]}" same-command

section "gateways of the compose file stand by for each other"
head -c 32 /dev/urandom >key
openssl rand -hex 20 >password
openssl rand -hex 20 >metrics-password
ask() {
    redis-cli -p "$((port + $1))" -a "$(cat password)" "${@:2}" 2>/dev/null || true
}
mkdir redis
mapfile -t command < <(venv/bin/python "${places[@]}" command redis)
start_service redis '.*Ready' "${command[@]}" --port "$((port + 9))" --dir redis
redis=$started
mapfile -t command < <(venv/bin/python "${places[@]}" command gateway-1)
start_service gateway-1 RESP "$traceless" "${command[@]}" --lease 2
first=$started
mapfile -t command < <(venv/bin/python "${places[@]}" command gateway-2)
"$traceless" "${command[@]}" --lease 2 >second.out 2>second.err &
second=$!
check "a value is set" test "$(ask 1 set name value)" = OK
check "the other gateway does not listen" test -z "$(ask 2 ping)"

section "Prometheus reads both, the dashboard's panels have data, and alerts are sound"
check "rules are sound" promtool check rules "$dist/monitoring/alerts.yaml"
check "alerts fire when they must" promtool test rules "$dist/monitoring/alerts-test.yaml"
venv/bin/python "${places[@]}" prometheus >prometheus.yaml
cp "$dist/monitoring/alerts.yaml" .
check "its configuration is sound" promtool check config prometheus.yaml
prometheus --config.file prometheus.yaml --storage.tsdb.path prometheus.data \
    --web.listen-address "127.0.0.1:$((port + 8))" >prometheus.out 2>&1 &
prometheus=$!
check "targets, rules and panels are served" venv/bin/python "${places[@]}" panels

section "a gateway that is killed is alerted of, and the other one takes its place"
kill -9 "$first"
wait "$first" || true
begin=$SECONDS
until [ "$(ask 2 ping)" = PONG ]; do
    [ $((SECONDS - begin)) -le 20 ] || fail "the second gateway does not answer"
    sleep 0.2
done
check "the value is there" test "$(ask 2 get name)" = value
check "Prometheus knows of the loss" venv/bin/python "${places[@]}" gone
kill "$second"
check "the second gateway ends well" wait "$second"
kill "$prometheus" "$redis"
wait "$prometheus" "$redis" || true
