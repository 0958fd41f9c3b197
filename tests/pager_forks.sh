#!/usr/bin/env bash
# Programs that fork while a thread of them is the pager: each copy starts a pager of its own.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

"$python" -c "print(*(n * 7919 % 20011 for n in range(1, 10001)), sep='\\n')" >numbers

section "copies of the process"
copies_of_the_process
shells_and_tools
evictions=0 same --resident 256 --way protect -- "$python" "$lib/forks.py"
evictions=0 same --resident 256 --policy clock -- "$python" "$lib/forks.py"

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

section "what is not paged of copies that end at once"
expect 0 run --resident 512 --strict -- "$python" -c "
import os
if os.fork() == 0:
    os._exit(0)
os.wait()"

section "a record of each copy's own"
run --resident 128 --trace record -- "$python" -c "
import os
if os.fork() == 0:
    list(range(100000))
else:
    os.wait()"
check "the program has one, and its copy" [ "$(find . -name 'record*' | wc -l)" = 2 ]
for record in record*; do
    check "$record is whole" "$traceless" audit compare "$record" "$record"
done

section "many copies, one after the other"
# Files of the pager that stay open, or stay listed as its own, would be more with each.
cat >many.py <<'END'
import os
area = bytearray(range(256)) * 64
def files():
    return len(os.listdir("/proc/self/fd"))
before = files()
for n in range(150):
    child = os.fork()
    if child == 0:
        os._exit(area != bytearray(range(256)) * 64)
    assert os.waitpid(child, 0)[1] == 0, n
assert files() == before, (before, files())
for number in range(900, 1000):
    try:
        os.close(number)
    except OSError:
        pass
print(area[77])
END
expect 0 run --resident 256 -- "$python" many.py
check "all are right" [ "$(cat out)" = 77 ]
expect 0 run --resident 256 --memory 8M --backing pages -- "$python" many.py
check "all are right, with their pages in files" [ "$(cat out)" = 77 ]
rm pages*
expect 0 run --resident 256 --memory 8M --trace many -- "$python" many.py
check "all are right, recorded" [ "$(cat out)" = 77 ]
rm many*

section "a program that may page no more"
take_setting
if [ "$(id -u)" -eq 0 ] && [ "$(cat "$allowed")" = 0 ] &&
    ! setpriv --reuid 65534 --clear-groups test -r /dev/userfaultfd; then
    expect 0 run --resident 64 -- "$python" -c "
import os
os.setuid(65534)
try:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
except BlockingIOError:
    print('refused')"
    check "it may not fork, and lives on" [ "$(cat out)" = refused ]
    check "and it is said why" grep -q "fork is refused" err
else
    leave_out "a program that may page no more: anybody may page here"
fi

section "programs that outlive the first one"
programs_that_outlive_the_first

section "as an ordinary user"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null && [ -w "$allowed" ]; then
    allow_ordinary_users
    mkdir ordinary
    chmod 777 ordinary
    # shellcheck disable=SC2016
    expect 0 setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all \
        --inh-caps=-all env HOME="$PWD/ordinary" "$traceless" run --lock off --resident 64 -- \
        bash -c 'a=$(seq 100 | sort -n | tail -n 1); (echo "$a")'
    check "a program forks" [ "$(cat out)" = 100 ]
    put_back
    was_allowed=
else
    leave_out "an ordinary user: it takes root and setpriv"
fi
