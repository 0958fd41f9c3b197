#!/usr/bin/env bash
# A gateway gives its key to a host in a confidential virtual machine, and to no other host. The
# machine is made up, and so is the maker of its processor: evidence of real processors is in the
# tests of traceless-attest.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

guest=$("$lib/example" made_up_guest)
attest=$(dirname "$traceless")/traceless-attest
port=$((20000 + RANDOM % 12000))
listen=127.0.0.1:$((port + 1))
gateway=("$traceless" gateway --blocks 500 --block-len 256 --lambda 8 --resp "127.0.0.1:$port"
    --host "$listen" --host-cert tree/host.pem --state state)
attested=("${gateway[@]}" --attestation-policy policy.toml --collateral made-up/chain.pem
    --made-up-root made-up/root.pem)
mkdir tsm

# A policy for the made-up guest, with the lines $1 before and $2 in its entry.
policy() {
    printf '%s\n[[accept]]\ntee = "snp"\nmeasurement = ["%s"]\n%s\n' "${1:-}" \
        "$(printf 'a5%.0s' $(seq 48))" "${2:-tcb-min = { snp = 22, microcode = 213 \}}"
}

# Starts a host once the made-up kernel has an entry under its number.
start_host() {
    rm -rf tsm/* pid made-up
    start_kernel
    # shellcheck disable=SC2016  # of the inner shell
    start_service host "host at" sh -c "$in_machine" sh "$traceless" host --listen "$listen" \
        --store file:tree "$@"
    serving=$started
}

# Starts a made-up kernel, which answers the next process that writes its number into `pid`.
start_kernel() {
    (
        until [ -s pid ]; do sleep 0.02; done
        exec "$guest" made-up "tsm/traceless-$(cat pid)" 2>guest.err
    ) &
    kernel=$!
}

# Becomes the command of the arguments, once the kernel has an entry for this process.
# shellcheck disable=SC2016  # of the inner shell
in_machine='echo $$ >pid.part && mv pid.part pid
    until [ -e "tsm/traceless-$$/provider" ]; do sleep 0.02; done
    exec "$@"'

stop_host() {
    kill "$serving"
    wait "$serving"
    end "$kernel"
}

section "a host on a machine that is no confidential virtual machine"
expect 1 "$traceless" host --listen "$listen" --store file:tree --evidence "$scratch/nowhere"
check "it says so" grep -q "no confidential virtual machine" err

section "a gateway whose policy accepts the machine"
start_host --evidence tsm
check "the host says what it sends" grep -q "evidence of this machine (snp)" host.err
policy >policy.toml
start_service gateway RESP "${attested[@]}"
check "the gateway says what it accepted" \
    grep -q "in snp a5a5a5a5a5a5a5a5, with a made-up root" gateway.err
check "a value is kept" test "$(redis-cli -p "$port" set name value)" = OK
kill "$started"
wait "$started"

# Ends without having given the key, and says $1. What follows are the command's words.
refuses() {
    local reason=$1
    shift
    expect 1 "$@"
    check "it says: $reason" grep -q "evidence is refused: .*$reason" err
}

section "a gateway whose policy does not"
policy "" "tcb-min = { snp = 23 }" >policy.toml
refuses "snp 22 is below 23" "${attested[@]}"
policy "collateral-age-days = 30" >policy.toml
refuses "no revocation list" "${attested[@]}"
policy | sed 's/"a5/"b5/' >policy.toml
refuses "its measurement is a5a5" "${attested[@]}"
echo "accept = []" >policy.toml
refuses "accepts nothing" "${attested[@]}"
policy >policy.toml
refuses "no root certificate of AMD" "${gateway[@]}" --attestation-policy policy.toml \
    --collateral made-up/chain.pem
refuses "cannot run" "${attested[@]}" --verifier "$scratch/nowhere"
refuses "the verifier said nothing" "${attested[@]}" --verifier /bin/true
expect 2 "${attested[@]}" --allow-simulated-tee
expect 2 "${gateway[@]}" --collateral made-up
expect 2 "${gateway[@]}"
check "it says what to do" grep -q "attestation-policy verifies hardware" err

section "the policy of the guide"
awk '/^```toml/ { inside = 1; next } /^```/ { inside = 0 } inside' "$root/docs/deploy.md" |
    sed "s/…/$(printf 'b5%.0s' $(seq 48))/g" >policy.toml
check "it accepts two kinds" [ "$(grep -c '^tee = ' policy.toml)" = 2 ]
sed -i '/collateral-age/d' policy.toml
refuses "its measurement is a5a5" "${attested[@]}"
policy >policy.toml
stop_host

section "a host without evidence, and one that repeats another's"
start_host
expect 2 "${attested[@]}"
check "it says so" grep -q "its host has no evidence of hardware" err
stop_host
start_host --evidence tsm
# What the kernel gives out is bound to an earlier token.
end "$kernel"
entry=tsm/traceless-$(cat pid)
"$guest" replayed replayed/entry &
kernel=$!
until [ -e replayed/entry/provider ]; do sleep 0.02; done
head -c 64 /dev/zero >replayed/entry/inblob
cat replayed/entry/outblob >report
rm "$entry/outblob"
cp report "$entry/outblob"
cp replayed/entry/auxblob "$entry/auxblob"
cp replayed/chain.pem replayed/root.pem made-up
refuses "not bound to this challenge" "${attested[@]}"
cat report "$entry/auxblob" >evidence
expect 0 "$attest" verify evidence --policy policy.toml --collateral made-up/chain.pem \
    --made-up-root made-up/root.pem --report-data "$(printf '00%.0s' $(seq 64))"
stop_host

section "a gateway in a confidential machine, and clients that verify it"
rm -rf tsm/* pid made-up
start_kernel
printf '#!/bin/sh\nset -- %s "$@"\n%s\n' "$attest" "$in_machine" >certifier
chmod +x certifier
served=("$traceless" gateway --local "$scratch/local" --blocks 500 --block-len 256 --lambda 8
    --allow-simulated-tee --resp "127.0.0.1:$port" --certify localhost --certify 127.0.0.1)
start_service gateway RESP "${served[@]}" --verifier "$scratch/certifier" --evidence tsm
judged=(--policy policy.toml --collateral made-up/chain.pem --made-up-root made-up/root.pem)
expect 0 "$attest" pin "localhost:$port" "${judged[@]}" --out trusted.pem
expect 0 "$attest" verify trusted.pem "${judged[@]}"
check "clients trust what was verified" test "$(redis-cli -h localhost -p "$port" --tls \
    --cacert trusted.pem set name value)" = OK
openssl s_client -connect "localhost:$port" -CAfile trusted.pem -verify_hostname localhost \
    </dev/null >shown 2>&1
check "openssl finds the name" grep -q 'Verify return code: 0' shown
policy | sed 's/"a5/"b5/' >policy.toml
expect 1 "$attest" pin "localhost:$port" "${judged[@]}" --out other.pem
check "it says why" grep -q "its measurement is a5a5" err
check "and writes nothing" [ ! -e other.pem ]
kill "$started"
wait "$started"
end "$kernel"
expect 4 "${served[@]}" --verifier "$attest"
check "elsewhere there is no evidence" grep -q "no confidential virtual machine" err

section "manifests name options that there are"
# The command of a manifest, one word a line, with files of this folder in place of its own.
cat "$root/dist/gramine/traceless-host.manifest.template" >manifest
python3 - <<'PYTHON' >gramine
import tomllib
words = tomllib.loads(open("manifest").read())["loader"]["argv"]
print("\n".join(words[1:]))
PYTHON
sed -n '/command: >-/,/# configfs/p' "$root/dist/dstack/docker-compose.yaml" | sed '1d;$d' |
    xargs -n 1 >dstack
for manifest in gramine dstack; do
    mapfile -t words < <(sed "s|0.0.0.0:6500|$listen|; s|/gateways.pem|$PWD/tree/host.pem|
        s|^/config||; s|/state|$PWD/hosted|; s|file:.*|file:$PWD/hosted/tree|
        s|/dev/attestation|$PWD/gramine-files|" "$manifest")
    mkdir -p gramine-files
    touch gramine-files/user_report_data gramine-files/quote
    if [ "$manifest" = gramine ]; then
        start_service host "host at" "$traceless" "${words[@]}"
        check "the host is inside its enclave" grep -q "evidence of this machine (sgx)" host.err
        kill "$started"
        wait "$started"
    else
        expect 1 "$traceless" "${words[@]}"
        check "without a machine: it says so" grep -q "no confidential virtual machine" err
    fi
done

section "a host inside an enclave of SGX serves as another one"
start_service host "host at" "$traceless" host --listen "$listen" --store "file:$PWD/inside" \
    --evidence "$PWD/gramine-files"
serving=$started
start_service gateway RESP "$traceless" gateway --blocks 500 --block-len 256 --lambda 8 \
    --resp "127.0.0.1:$port" --host "$listen" --host-cert inside/host.pem --state inner \
    --allow-simulated-tee
check "a value is kept" test "$(redis-cli -p "$port" set name value)" = OK
check "and found" test "$(redis-cli -p "$port" get name)" = value
check "the host has no other process" [ -z "$(pgrep -P "$serving" || true)" ]
kill "$started"
wait "$started"
kill "$serving"
wait "$serving"
