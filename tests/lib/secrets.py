"""Looks for the secret that `secrets.c` plants, and sends memory of processes to the swap device.

    secrets.py count FILE...       how often it stands in them
    secrets.py pageout PID...      all memory of these processes, and of their descendants
    secrets.py tree PID...         these processes and their descendants
"""

import ctypes
import os
import sys

SECRET = bytes(((at * 167 + 91) & 0xFF) ^ 0x5C for at in range(32))
PART = 1 << 20
MADV_PAGEOUT = 21
PROCESS_MADVISE = 440


def count(path):
    """Each copy that is whole counts, wherever it begins."""
    found, rest = 0, b""
    with open(path, "rb") as file:
        while part := file.read(PART):
            found += (rest + part).count(SECRET)
            rest = (rest + part)[-len(SECRET) + 1 :]
    return found


def tree(pids):
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass  # It has ended.
    all_of_them = list(pids)
    for pid in all_of_them:
        all_of_them += [child for child, parent in parents.items() if parent == pid]
    return all_of_them


class Part(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def pageout(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    asked = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            start, end = (int(text, 16) for text in line.split()[0].split("-"))
            part = Part(start, end - start)
            # Locked mappings refuse it.
            done = libc.syscall(
                PROCESS_MADVISE, handle, ctypes.byref(part), 1, MADV_PAGEOUT, 0
            )
            asked += done > 0
    os.close(handle)
    if not asked:
        sys.exit(f"process_madvise does nothing for {pid}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    action, names = sys.argv[1], sys.argv[2:]
    if action == "count":
        print(sum(count(name) for name in names))
    elif action == "tree":
        print(*tree(map(int, names)))
    else:
        for process in tree(map(int, names)):
            pageout(process)
