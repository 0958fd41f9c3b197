#!/bin/busybox sh
# The first process of the guest: loads the modules, runs the cases, and switches the machine off.
# What is for tests/guest/run.sh goes to the second serial line, which is descriptor 3.

export PATH=/bin:/box LC_ALL=C HOME=/tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir /box
busybox --install -s /box
mount -t tmpfs -o size=1g tmp /tmp
mount -t tmpfs run /run
ln -s /proc/self/fd /dev/fd
ln -s /proc/mounts /etc/mtab
ip link set lo up
exec 3>/dev/ttyS1

for module in /modules/*.ko; do
    insmod "$module" || echo "$module does not load" >&3
done
. /settings

for case in $CASES; do
    begun=$(cut -d . -f 1 /proc/uptime)
    result=FAILED
    if timeout -k 5 "$((200 + 4 * SECONDS_OF_LOAD))" bash "/cases/$case.sh"; then
        result=passed
    fi
    now=$(cut -d . -f 1 /proc/uptime)
    echo "$case: $result after $((now - begun)) s" >&3
done
poweroff -f
