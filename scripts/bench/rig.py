"""What the benchmarks share: processes of their own, what those cost, and tables.

Not a benchmark itself, so not executable: scripts/bench.sh leaves it out.
"""

import http.client
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
GSWARM = TARGET / "release" / "gswarm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gswarm" / "bench"
MIB = 1024 * 1024

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 120


def say(text=""):
    print(text, flush=True)


def number_from(variable, otherwise):
    return int(os.environ.get(variable) or otherwise)


def percentile(values, share):
    """The value that `share` of all do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


# --- processes


class Process:
    """A child that ends with the benchmark, by its own handle."""

    def __init__(self, name, command, log, env=None, **options):
        self.name = name
        self.log = Path(log)
        with open(self.log, "wb") as stderr:
            self.child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=options.pop("stdout", stderr),
                stderr=stderr,
                env={**os.environ, **(env or {})},
                **options,
            )
        self.pid = self.child.pid

    def check(self):
        """Ends the benchmark when the child ended before its time."""
        if self.child.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            sys.exit(f"bench: {self.name} ended early ({self.child.returncode}):\n{tail}")

    def stop(self):
        if self.child.poll() is not None:
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            say(f"bench: {self.name} did not stop by itself")
            self.child.kill()
            self.child.wait()

    # What it cost so far.

    def cpu_seconds(self):
        """User and system time of all its threads, also of those that ended.

        The process's CPU clock: /proc/PID/stat says the same in steps of 10 ms, which is more than
        the agent needs in a second.
        """
        return time.clock_gettime((~self.pid << 3) | 2)

    def memory(self, kind="Rss"):
        """Bytes; `Pss` shares out what several processes map."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(kind + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))


@contextmanager
def workshop(name):
    """A directory on the disk of the build, and a list of processes; both are gone afterwards."""
    parent = TARGET / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=name + "-", dir=parent))
    processes = []
    # A polite kill of the benchmark ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))
    try:
        yield directory, processes
    finally:
        stop_all(processes)
        shutil.rmtree(directory, ignore_errors=True)


def stop_all(processes):
    """The last one first; one that cannot be stopped does not keep the others."""
    while processes:
        process = processes.pop()
        try:
            process.stop()
        except Exception as error:
            say(f"bench: {process.name}: {error!r}")


def raise_file_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def wait_until(what, condition, *processes, seconds=START_SECONDS_MAX):
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            sys.exit(f"bench: waited {seconds} s for {what}")
        time.sleep(0.05)


# --- gswarm


class Host(Process):
    """A real host on a free port."""

    def __init__(self, directory, processes, *flags):
        if not GSWARM.exists():
            sys.exit(f"bench: {GSWARM} is missing: `make bench` builds it")
        self.data = directory / "data"
        command = [
            GSWARM, "host", "start", "--port", "0", "--single-port",
            "--data-dir", self.data, "--output-dir", directory, *flags,
        ]
        super().__init__("the host", command, directory / "host.log", own_home(directory))
        processes.append(self)
        run = wait_until("the host", lambda: read_json(self.data / "run.json"), self)
        self.address = run["addresses"][0]
        self.port = int(self.address.rsplit(":", 1)[1])
        # As the commands of the user who started it read it.
        self.token = read_json(directory / "home" / "hosts" / f"{self.port}.json")["token"]

    def request(self, method, path, body=None):
        """The answer, to be read or streamed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        payload = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            sys.exit(f"bench: {method} {path}: {answer.status} {answer.read()[:500]!r}")
        return answer

    def get(self, path):
        return json.load(self.request("GET", path))

    def post(self, path, body):
        return json.load(self.request("POST", path, body))

    def export(self, session):
        """The lines of a record export, as they come."""
        answer = self.request("GET", f"/api/v1/sessions/{session}/export?format=jsonl")
        rest = b""
        while piece := answer.read(4 * MIB):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            yield from lines
        if rest:
            sys.exit("bench: the export broke off inside a line")


class Agent(Process):
    """A real agent with a state directory of its own."""

    def __init__(self, directory, processes, host, name, *flags, env=None):
        self.state = directory / f"agent-{name}"
        command = [
            GSWARM, "client", "connect", host.address,
            "--node-id", name, "--state-dir", self.state, *flags,
        ]
        env = {**own_home(directory), **(env or {})}
        super().__init__(f"agent {name}", command, directory / f"agent-{name}.log", env)
        processes.append(self)
        wait_until(self.name, lambda: node_of(host, name), self)


def own_home(directory):
    """No configuration of the person who runs the benchmark."""
    return {"GSWARM_HOME": str(directory / "home")}


def node_of(host, name):
    nodes = host.get("/api/v1/nodes")["nodes"]
    return next((node for node in nodes if node["name"] == name and node["connected"]), None)


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


# --- output


def table(head, rows):
    """First column to the left, the others to the right."""
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        say("  " + "   ".join(cells).rstrip())
        if row is rows[0]:
            say("  " + "   ".join("-" * width for width in widths))


def ingest(directory, nodes, seconds, scenario="steady", *more):
    """The report of one `gswarm bench ingest`; `None` when it did not come to an end."""
    command = [
        GSWARM, "bench", "ingest", "--json", "--nodes", str(nodes), "--duration", f"{seconds}s",
        "--scenario", scenario, "--dir", directory, *more,
    ]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not done.stdout:
        say(f"  {nodes} nodes, {scenario}: {done.stderr.strip().splitlines()[-1]}")
        return None
    return json.loads(done.stdout)


def is_whole(report):
    """Every record is there once."""
    audit = report["audit"]
    lost = audit["missing"] + audit["repeated"] + audit["strange"] + audit["gaps"] + report["dropped"]
    return lost == 0 and audit["records"] == report["sampled"]


def verdict(what, value, limit, unit, digits=2):
    """Says PASS or MISS, and which it was."""
    is_met = value <= limit
    say(f"  {'PASS' if is_met else 'MISS'}  {what}: {value:.{digits}f} {unit}, target <= {limit:g} {unit}")
    return is_met


def describe_machine():
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    say(f"  machine: {os.cpu_count()} cores, {model}, {memory:.0f} GiB; load average {load:.1f}")
