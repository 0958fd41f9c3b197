"""Reads the files of dist/ for operators. operations.py DIST PORT SCRATCH WORK [NAME]

same-command: the gateways of compose.yaml and of the manifests have the same command.
command NAME: the command of a service of compose.yaml, for this machine: a word in each line.
prometheus: the configuration of Prometheus, for this machine.
panels: waits until Prometheus has read a gateway, and every panel's expressions have a result.
gone: waits until Prometheus has noticed that a gateway is gone.
"""

import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

import yaml

dist, port, scratch, work, *names = sys.argv[1:]
dist, port = pathlib.Path(dist), int(port)
# The services of the compose file, and the ports of theirs that gateways name.
PORTS = {"redis:6379": port + 9, "gateway-1:9401": port + 3, "gateway-2:9401": port + 4}
PATIENCE = 60


def compose():
    return yaml.safe_load((dist / "compose/compose.yaml").read_text())["services"]


def manifests():
    return list(yaml.safe_load_all((dist / "kubernetes/traceless.yaml").read_text()))


def here(text, number=0):
    """The text with addresses and paths of this machine."""
    for name, own in PORTS.items():
        text = text.replace(name, f"127.0.0.1:{own}")
    text = text.replace("0.0.0.0:6400", f"127.0.0.1:{port + number}")
    text = text.replace("0.0.0.0:9401", f"127.0.0.1:{port + 2 + number}")
    return text.replace("/run/secrets", scratch)


def get(path, **query):
    url = f"http://127.0.0.1:{port + 8}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url) as reply:
        return json.load(reply)["data"]


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit(f"not within {PATIENCE} s: {what}")


def same_command():
    sets = [one for one in manifests() if one["metadata"]["name"] == "traceless"]
    [container] = sets[-1]["spec"]["template"]["spec"]["containers"]
    services = compose()
    for name in ("gateway-1", "gateway-2"):
        assert services[name]["command"] == container["args"], name
        assert services[name]["image"] == container["image"], name


def prometheus():
    config = yaml.safe_load((dist / "monitoring/prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    print(here(yaml.safe_dump(config)))


def series(expression):
    return get("query", query=expression)["result"]


def panels():
    wait_for(lambda: series('up{job="traceless"} == 1'), "a gateway that is up")
    groups = get("rules")["groups"]
    assert len(groups) == 1 and all(rule["health"] != "err" for rule in groups[0]["rules"])
    dashboard = json.loads((dist / "monitoring/grafana.json").read_text())
    # These appear with the first failure, or at a constant rate.
    later = ("traceless_errors_total",)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "10s")
            if any(name in expression for name in later):
                series(expression)
                continue
            wait_for(lambda: series(expression), f"{panel['title']}: {expression}")


def gone():
    wait_for(lambda: series('up{job="traceless",instance=~".*:%d"} == 0' % (port + 3)), "its loss")
    wait_for(lambda: series('up{job="traceless",instance=~".*:%d"} == 1' % (port + 4)), "the other")
    wait_for(lambda: series('ALERTS{alertname="TracelessGone"}'), "an alert")


if work == "command":
    [name] = names
    number = int(name[-1]) if name[-1].isdigit() else 0
    print("\n".join(here(word, number) for word in compose()[name]["command"]))
else:
    {"same-command": same_command, "prometheus": prometheus, "panels": panels, "gone": gone}[work]()
