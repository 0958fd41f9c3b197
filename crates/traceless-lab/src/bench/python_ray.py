"""Measures sweeps on a cluster of Ray with two workers on this machine: for each round a line with
the time of the local sweep with two jobs, of the time on the cluster. Prints `absent: REASON` if
there is no Ray.

usage: python_ray.py EXPERIMENT RECORDS ROUNDS
"""

import os
import sys
import tempfile
import time

try:
    # Workers give way to all other programs unless the environment says otherwise.
    os.environ["RAY_worker_niceness"] = "0"
    import ray
except ImportError:
    print("absent: Ray is not installed (pip install ray)")
    sys.exit()

import traceless
import traceless.ray

EXPERIMENT, RECORDS, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def seconds(sweep, records, **options):
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        sweep([EXPERIMENT], folder, records=records, **options)
        return time.perf_counter() - began


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
# The workers are started, and have imported the package.
seconds(traceless.ray.sweep, 10)
for nth in range(ROUNDS):
    turns = ["local", "cluster"] if nth % 2 == 0 else ["cluster", "local"]
    times = {}
    for turn in turns:
        if turn == "local":
            times[turn] = seconds(traceless.sweep, RECORDS, jobs=2)
        else:
            times[turn] = seconds(traceless.ray.sweep, RECORDS)
    print(times["local"] / times["cluster"], flush=True)
ray.shutdown()
