#!/usr/bin/env bash
# Programs that fork while a thread of them is the pager: each copy starts a pager of its own.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

# The setting of this machine, while it is another one.
allowed=/proc/sys/vm/unprivileged_userfaultfd
was_allowed=
put_back() {
    [ -z "$was_allowed" ] || echo "$was_allowed" >"$allowed" || true
}

"$python" -c "print(*(n * 7919 % 20011 for n in range(1, 10001)), sep='\\n')" >numbers

section "copies of the process"
copies_of_the_process
shells_and_tools
evictions=0 same --resident 64 --way protect -- "$python" "$lib/forks.py"
evictions=0 same --resident 64 --policy clock -- "$python" "$lib/forks.py"

section "where programs run"
same_places fork

section "pages that copies of the process do not have"
gcc -O1 -Wall -Wextra -Werror "$lib/wiped.c" -o wiped
evictions=1 same --resident 16 --memory 8M -- ./wiped
expect 0 run --resident 16 --memory 8M -- ./wiped apart
check "the copy has zeros" grep -q "^copy: 0 2 0 4" out
check "the program has all" grep -q "^program: 1 2 3 4" out

section "memory at any address, in each protection, and early accesses in the copy"
gcc -O1 -Wall -Wextra -Werror -pthread "$lib/copied.c" -o copied
evictions=0 same --resident 16 --memory 8M -- ./copied

section "a record of each copy's own"
run --resident 16 --trace record -- "$python" -c "
import os
if os.fork() == 0:
    list(range(100000))
else:
    os.wait()"
check "the program has one, and its copy" [ "$(find . -name 'record*' | wc -l)" = 2 ]
for record in record*; do
    check "$record is whole" "$traceless" audit compare "$record" "$record"
done

section "programs that outlive the first one"
programs_that_outlive_the_first

section "as an ordinary user"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null && [ -w "$allowed" ]; then
    was_allowed=$(cat "$allowed")
    echo 1 >"$allowed"
    mkdir ordinary
    chmod 777 ordinary
    # shellcheck disable=SC2016
    expect 0 setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all \
        --inh-caps=-all env HOME="$PWD/ordinary" "$traceless" run --lock off --resident 64 -- \
        bash -c 'a=$(seq 100 | sort -n | tail -n 1); (echo "$a")'
    check "a program forks" [ "$(cat out)" = 100 ]
    echo "$was_allowed" >"$allowed"
else
    leave_out "an ordinary user: it takes root and setpriv"
fi
