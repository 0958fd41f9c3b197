"""Where a program may run, and what it starts, right after many page faults: as without paging.

How often it is held on one processor meanwhile is left in the file `held`.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time

PAGE = 4096
KERNEL_SAYS = ["grep", "Cpus_allowed_list", "/proc/self/status"]

area = bytearray(2 << 20)
libc = ctypes.CDLL(None)
held = 0


def kernel_says():
    """What the kernel knows of this thread, whoever is told something else."""
    file = os.open("/proc/thread-self/status", os.O_RDONLY)
    status = os.read(file, 4096)
    os.close(file)
    return status.split(b"Cpus_allowed_list:")[1].split()[0].decode()


free = kernel_says()


def fault():
    global held
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        for page in range(0, len(area), PAGE):
            area[page] = area[page] + 1 & 0xFF
        held += kernel_says() != free


def after_faults(name, what):
    fault()
    print(name, what(), flush=True)


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found


def as_pthread(thread):
    mask = (ctypes.c_uint64 * 16)()
    assert libc.pthread_getaffinity_np(thread, ctypes.sizeof(mask), mask) == 0
    return [hex(word) for word in mask]


def while_it_faults(ask):
    """What another thread learns of this one."""
    found = []

    def asks():
        time.sleep(0.1)
        found.append(ask())

    thread = threading.Thread(target=asks)
    thread.start()
    fault()
    thread.join()
    return found


def spawned():
    return os.waitpid(os.posix_spawnp("grep", KERNEL_SAYS, os.environ), 0)[1]


def copied():
    child = os.fork()
    if child == 0:
        print("in the copy", os.sched_getaffinity(0), flush=True)
        subprocess.run(KERNEL_SAYS, check=True)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def a_while_later():
    """What another process sees, which was started before."""
    watch = "import os, time; time.sleep(1); print(open(f'/proc/{os.getppid()}/status').read())"
    with subprocess.Popen([sys.executable, "-c", watch], stdout=subprocess.PIPE) as watching:
        fault()
        status = watching.stdout.read()
    return status.split(b"Cpus_allowed_list:")[1].split()[0]


def says_where(cpus):
    os.sched_setaffinity(0, cpus)
    fault()
    return os.sched_getaffinity(0), kernel_says(), subprocess.check_output(KERNEL_SAYS)


itself = threading.get_ident()
libc.pthread_getaffinity_np.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
number = threading.get_native_id()
every = os.sched_getaffinity(0)
after_faults("itself", lambda: os.sched_getaffinity(0))
after_faults("as a thread", lambda: as_pthread(itself))
after_faults("by number", lambda: os.sched_getaffinity(number))
print("for another", while_it_faults(lambda: os.sched_getaffinity(number)))
print("for another", while_it_faults(lambda: as_pthread(itself)))
after_faults("a thread", lambda: in_thread(kernel_says))
after_faults("a child", lambda: subprocess.check_output(KERNEL_SAYS))
after_faults("nproc", lambda: subprocess.check_output(["nproc"]))
after_faults("spawned", spawned)
after_faults("a shell", lambda: os.system(" ".join(KERNEL_SAYS)))
if "fork" in sys.argv:
    after_faults("a copy", copied)
with open("held", "w") as file:
    file.write(str(held))
print("a while later", a_while_later())
if "stay" not in sys.argv:
    print("one", says_where({max(every)}))
    print("all", says_where(every))
fault()
os.execvp(KERNEL_SAYS[0], KERNEL_SAYS)
