"""Loses the primary of a pair of PostgreSQL servers under a running Isobar, and looks for every acknowledged event.

    ISOBAR=target/debug/isobar scripts/with-patroni python3 tests/failover/failover.py HOW [PAIR]

crash       its PostgreSQL is killed (kill -9)
machine     all of it is gone at once: PostgreSQL is killed, Patroni says nothing any more
frozen      all of it stops, and goes on when the other has taken over
switchover  patronictl makes the standby the primary
cut         replication stands still, then Isobar's connections are cut, then its PostgreSQL is killed
standby     it stays; its standby stops without a word

With PAIRS=2 the registry is in pair A, telemetry in B. PAIR is the one that loses its primary: telemetry's, if not given.
KEEP=FOLDER copies the logs there. Fails if an acknowledged event is missing, or doubled, or a device's events are not in their order.
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watch"))
ADDRESSES = os.environ.pop("ISOBAR_TEST_PATRONI").split()
FOLDER = pathlib.Path(os.environ.pop("ISOBAR_TEST_PATRONI_FOLDER"))
from server import Administrator, check, fetch, folder, isobar, wait_for  # noqa: E402

DEVICES = 4
# Seconds of a calm before and after, and that a connection is given, and what stands still before it is killed.
BEFORE, AFTER, STANDSTILL = 5, 10, 5
# A probe of the database that takes longer has failed, after so many seconds.
PROBE = 3


def pid(name):
    return int((FOLDER / f"{name}.pid").read_text().split()[0])


def primary(pair):
    """Returns the name of a pair's primary, if it has one."""
    return subprocess.run([FOLDER / "primary", pair], capture_output=True, text=True).stdout.strip()


def processes(server):
    """Returns the processes of a PostgreSQL server, with their titles; the first is the one that starts the others."""
    first = pid(f"postgres-{server}")
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(first)], capture_output=True, text=True).stdout
    return [(first, "")] + [(int(line.split()[0]), line) for line in listed.splitlines()]


def send(number, *targets):
    for target in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, number)


class Spans:
    """Moments of success, and the times of failure between them."""

    def __init__(self):
        self.good, self.lock = [time.monotonic()], threading.Lock()

    def add(self):
        with self.lock:
            self.good.append(time.monotonic())

    def longest(self, since):
        """Returns the longest time without success that ended after a moment, or has not ended yet."""
        good = [*sorted(self.good), time.monotonic()]
        return max((b - a for a, b in zip(good, good[1:]) if b > since), default=0)


class Load:
    """Devices that post events one after the other, each again until it is acknowledged."""

    def __init__(self, url, devices):
        self.url, self.devices = url, devices
        self.acknowledged = {device["id"]: {} for device in devices}
        self.spans, self.refusals, self.slowest, self.told = Spans(), collections.Counter(), 0, []
        # When an event was sent that was acknowledged, how long that took, and how often it had been sent.
        self.how, self.ended = {}, threading.Event()

    def post(self, device, n, tries):
        key = f"{device['id'][-12:]}-{n}"
        headers = {"cloud": device["token"], "idempotency-key": key}
        begun = time.monotonic()
        try:
            status, _, answer = fetch(self.url, "POST", "/v2/events/device?elementName=reading", {"n": n}, headers)
        except (urllib.error.URLError, OSError) as error:
            status, answer = type(error).__name__, b""
        took = time.monotonic() - begun
        self.slowest = max(self.slowest, took)
        if status == 201:
            self.acknowledged[device["id"]][n] = json.loads(answer)["id"]
            self.how[device["id"], n] = begun, took, tries
            self.spans.add()
            return True
        self.refusals[status] += 1
        self.told.append((time.monotonic(), status, round(took, 1), answer[:200].decode()))
        return False

    def run(self, device):
        n = tries = 1
        while not self.ended.is_set():
            if self.post(device, n, tries):
                n, tries = n + 1, 1
            else:
                tries += 1
                self.ended.wait(0.1)

    @contextlib.contextmanager
    def running(self):
        threads = [threading.Thread(target=self.run, args=(device,)) for device in self.devices]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()


def probe(address, spans, ended):
    """Commits something in the database again and again, past Isobar."""
    psql = shutil.which("psql")
    words = [psql, address, "-X", "-q", "-A", "-t", "-c", "SELECT pg_logical_emit_message(true, 'probe', '')"]
    while not ended.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(words, capture_output=True, timeout=PROBE).returncode == 0:
                spans.add()
        ended.wait(0.2)


def cut(pair, server):
    """Ends all connections of clients to a server, whatever they wait for."""
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(str(FOLDER / f"haproxy-{pair}.sock"))
        name = f"isobar-{pair.lower()}"
        admin.sendall(f"shutdown sessions server {name}/{name}-{server[-1]}\n".encode())
        admin.recv(100)


def lose(how, pair):
    """Takes the primary away; returns what brings the machine back."""
    server = primary(pair)
    patroni, all_of_it = pid(f"patroni-{server}"), processes(server)
    pids = [number for number, _ in all_of_it]
    match how:
        case "crash":
            send(signal.SIGKILL, pids[0])
        case "machine":
            send(signal.SIGSTOP, patroni)
            send(signal.SIGKILL, *pids)
            return server, lambda: send(signal.SIGCONT, patroni)
        case "frozen":
            send(signal.SIGSTOP, patroni, *pids)
            return server, lambda: send(signal.SIGCONT, *pids, patroni)
        case "switchover":
            other = f"{pair}-{3 - int(server[-1])}"
            names = [f"isobar-{name.lower()}" for name in (server, other)]
            words = ["--leader", names[0], "--candidate", names[1], "--force", f"isobar-{pair.lower()}"]
            subprocess.run(["patronictl", "-c", FOLDER / f"patroni-{server}.yml", "switchover", *words], check=True, capture_output=True)
        case "cut":
            senders = [number for number, title in all_of_it if "walsender" in title]
            check(len(senders) == 1, f"the primary has one standby: {all_of_it}")
            send(signal.SIGSTOP, *senders)
            time.sleep(1)
            cut(pair, server)
            time.sleep(STANDSTILL)
            send(signal.SIGKILL, pids[0], *senders)
        case "standby":
            other = f"{pair}-{3 - int(server[-1])}"
            patroni, pids = pid(f"patroni-{other}"), [number for number, _ in processes(other)]
            send(signal.SIGSTOP, patroni, *pids)
            return server, lambda: send(signal.SIGCONT, *pids, patroni)
        case _:
            raise SystemExit(__doc__)
    return server, lambda: None


def history(administrator, device):
    """Returns the events of a device, oldest first."""
    found, page = [], 1
    while True:
        answer = administrator.get(f"/v2/devices/{device}/events?limit=10000&page={page}")
        found += answer["data"]
        if not answer["meta"]["hasNextPage"]:
            return found[::-1]
        page += 1


def examine(administrator, load, lost_at):
    """Prints what was acknowledged and what is there; returns true if that is the same."""
    missing, doubled, disordered = [], [], []
    for device, acknowledged in load.acknowledged.items():
        events = history(administrator, device)
        ids, numbers = collections.Counter(e["id"] for e in events), collections.Counter(e["payload"]["n"] for e in events)
        missing += [(device, n, i) for n, i in acknowledged.items() if not ids[i]]
        doubled += [(device, n) for n, count in numbers.items() if count > 1]
        order = [event["payload"]["n"] for event in events]
        disordered += [device] if order != sorted(order) else []
    count = sum(len(acknowledged) for acknowledged in load.acknowledged.values())
    print(f"acknowledged {count}, missing {len(missing)}, doubled {len(doubled)}, devices out of order {len(disordered)}")
    if missing:
        sent = sorted(load.how[device, n][0] - lost_at for device, n, _ in missing)
        print(f"  those missing were sent from {sent[0]:+.1f} s to {sent[-1]:+.1f} s")
    for device, n, event in missing[:10]:
        begun, took, tries = load.how[device, n]
        print(f"  missing: {event}, number {n} of {device}, sent at {begun - lost_at:+.1f} s, 201 after {took:.1f} s, try {tries}")
    for one in doubled[:10]:
        print(f"  doubled: {one}")
    return not (missing or doubled or disordered)


def log_lines(work):
    """Prints the warnings and errors of Isobar's log, equal ones once."""
    counted = {}
    for line in (work / "isobar.log").read_text().splitlines():
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if told.get("level") in ("WARN", "ERROR"):
                fields = told.get("fields", told)
                text = " ".join(str(v) for k, v in fields.items() if k not in ("timestamp", "level", "target"))
                text = re.sub(r"\b[0-9a-f]{16}\b", "…", text)
                first = counted.setdefault(f"{told['level']} {text}"[:400], [told.get("timestamp"), 0])
                first[1] += 1
    for text, (first, count) in counted.items():
        print(f"  {first} x{count} {text}")


def main():
    how, pair = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "AB"[len(ADDRESSES) - 1]
    address = ADDRESSES["AB".index(pair)]
    settings = {
        "ISOBAR_STORES__REGISTRY": ADDRESSES[0],
        "ISOBAR_STORES__TELEMETRY": ADDRESSES[-1],
        "ISOBAR_RATE_LIMIT__DEVICE": "0",
    }
    with folder() as work, isobar(work, **settings) as url:
        administrator = Administrator(url)
        project = administrator.post("/v2/projects", {"name": "Failover"}, wanted=201)["id"]
        made = [{"name": f"Device {n}", "projectUuid": project} for n in range(DEVICES)]
        devices = [administrator.post("/v2/devices", body, wanted=201) for body in made]
        load, database, ended = Load(url, devices), Spans(), threading.Event()
        watcher = threading.Thread(target=probe, args=(address, database, ended))
        watcher.start()
        try:
            with load.running():
                time.sleep(BEFORE)
                lost_at, count = time.monotonic(), len(load.spans.good)
                server, bring_back = lose(how, pair)
                print(f"{how}: {server}, beginning {count} events after the start")
                if how != "standby":
                    wait_for("another primary", lambda: primary(pair) not in ("", server))
                print(f"  {primary(pair)} is the primary after {time.monotonic() - lost_at:.1f} s")
                time.sleep(0.5)
                wait_for("events are acknowledged again", lambda: load.spans.good[-1] > time.monotonic() - 0.3)
                bring_back()
                time.sleep(AFTER)
                check(load.spans.good[-1] > time.monotonic() - 5, "events are still acknowledged")
        finally:
            gaps = load.spans.longest(lost_at), database.longest(lost_at)
            ended.set()
            watcher.join()
            print(f"longest gap between acknowledgements {gaps[0]:.1f} s, between commits past Isobar {gaps[1]:.1f} s")
            print(f"refusals {dict(load.refusals)}, slowest answer {load.slowest:.1f} s")
            for at, *rest in load.told[:8] + load.told[-4:]:
                print(f"  {at - lost_at:+.1f} s {rest}")
            log_lines(work)
            for log in [work / "isobar.log", *FOLDER.glob("*.log")] if "KEEP" in os.environ else []:
                shutil.copy(log, os.environ["KEEP"])
        if not examine(Administrator(url), load, lost_at):
            raise SystemExit(1)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
