"""Real processes for one test: a host, agents that join it, and plain HTTP to talk to it."""

import http.client
import json
import os
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Generous: it only matters when something is broken, and the machine may be busy.
DEADLINE_S = 60


def program():
    """The binary under test: GSWARM_BIN, else the newest build."""
    given = os.environ.get("GSWARM_BIN")
    if given:
        return str(Path(given).resolve())
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for kind in ("release", "debug") if (path := target / kind / "gswarm").is_file()]
    if not built:
        raise FileNotFoundError("gswarm was not built: cargo build -p gswarm, or set GSWARM_BIN")
    return str(max(built, key=lambda path: path.stat().st_mtime).resolve())


def eventually(look, what, seconds=DEADLINE_S):
    """The first truth that `look` finds; fails after the deadline, not before."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


@contextmanager
def trial(what):
    """What a test of faults did, as `make torture` adds it up: see crates/gswarm-trial."""
    report = {"what": what, "rounds": 0, "seeds": 0, "faults": 0, "records": 0, "lost": 0, "passed": False}
    try:
        yield report
        report["passed"] = True
    finally:
        path = os.environ.get("GSWARM_TRIAL_REPORT")
        if path:
            with open(path, "a") as file:
                file.write(json.dumps(report) + "\n")


def strict_json(text):
    """JSON without the NaN and Infinity that Python reads but nobody else does."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    def json(self):
        assert self.headers["content-type"] == "application/json", self
        return strict_json(self.body)


def request(address, method, path, body=None, headers=None, timeout=DEADLINE_S):
    """One request on a connection of its own; a dict becomes JSON as curl users send it."""
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, fields, answer.read())
    finally:
        connection.close()


def environment_of(directory, **more):
    """Nothing of the user's own configuration reaches the tests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GSWARM_")}
    return {**environment, "GSWARM_HOME": str(directory / "home"), "HOME": str(directory), **more}


def run(directory, *arguments, **more):
    """One command from beginning to end."""
    directory.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [program(), *map(str, arguments)],
        cwd=directory,
        env=environment_of(directory),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        **more,
    )


class Process:
    """A child that writes to a log file and is ended by its own id."""

    def __init__(self, arguments, directory, log, **variables):
        self.log = Path(log)
        environment = environment_of(directory, **variables)
        with self.log.open("wb") as output:
            self.child = subprocess.Popen(
                [program(), *map(str, arguments)],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def alive(self):
        return self.child.poll() is None

    def wait(self, seconds=DEADLINE_S):
        return self.child.wait(seconds)

    def stop(self):
        """Asks it to end and returns its exit code."""
        if self.alive():
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait(20)

    def said(self):
        return self.log.read_text(errors="replace")


@dataclass
class Host:
    process: Process
    directory: Path
    addresses: list
    agents: list = field(default_factory=list)

    @property
    def address(self):
        """Where this machine reaches it without ado."""
        own = [address for address in self.addresses if address.startswith("127.")]
        return (own or self.addresses)[0]

    @property
    def data(self):
        return self.directory / "data"

    @property
    def output(self):
        return self.directory / "output"

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    @property
    def token(self):
        """The token of the host's own machine, as the user who started it can read it."""
        return json.loads((self.directory / "home" / "hosts" / f"{self.port}.json").read_text())["token"]

    @property
    def admin(self):
        """Headers of the user who started the host."""
        return {"Authorization": f"Bearer {self.token}"}

    def run(self, *arguments, **more):
        """A command of the user who started the host."""
        return run(self.directory, *arguments, "--host", self.address, **more)

    def get(self, path, **more):
        return request(self.address, "GET", path, **more)

    def post(self, path, body=None, **more):
        return request(self.address, "POST", path, body, **more)

    def json(self, path):
        reply = self.get(path)
        assert reply.status == 200, reply
        return reply.json()

    def export(self, key, shape="json"):
        reply = self.get(f"/api/v1/sessions/{key}/export?format={shape}")
        assert reply.status == 200, reply
        return reply.body.decode()

    def join(self, name, devices="sim:2xh100"):
        """An agent of its own process; returns once the host has its values."""
        agent = self.begin_joining(name, devices)
        self.wait_for_values([name])
        return agent

    def join_all(self, names, devices="sim:2xh100"):
        for name in names:
            self.begin_joining(name, devices)
        self.wait_for_values(names)

    def begin_joining(self, name, devices):
        arguments = ["client", "connect", self.address, "-n", name, "--devices", devices]
        arguments += ["--state-dir", self.directory / f"state-{name}"]
        agent = Process(arguments, self.directory, self.directory / f"agent-{name}.log")
        self.agents.append(agent)
        return agent

    def wait_for_values(self, names):
        def delivered():
            for agent in self.agents:
                assert agent.alive(), agent.said()
            return set(names) <= {node["node"] for node in self.json("/api/v1/metrics/latest")["nodes"]}

        eventually(delivered, f"values of {names}")

    def stored(self):
        return self.json("/api/v1/status")["ingest"]["records_stored"]

    def is_well(self):
        """It runs and takes records; that old nodes went silent is not its fault."""
        return self.process.alive() and self.get("/api/v1/health").status == 200

    def stop(self):
        for agent in self.agents:
            agent.stop()
        return self.process.stop()


def start_host(directory, *arguments, ports=None, **variables):
    """A host on free ports: one of its own choice, or the three given."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "output").mkdir(exist_ok=True)
    data = directory / "data"
    port, http_port, model_port = ports or (0, 0, 0)
    process = Process(
        ["host", "start", "--port", port, "--http-port", http_port, "--model-port", model_port]
        + ["--data-dir", data, "--output-dir", directory / "output", *arguments],
        directory,
        directory / "host.log",
        **variables,
    )

    def ready():
        assert process.alive(), process.said()
        try:
            run = json.loads((data / "run.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return run["addresses"] if run["pid"] == process.child.pid else None

    try:
        return Host(process, directory, eventually(ready, "run.json of the host"))
    except BaseException:
        process.stop()
        raise


@contextmanager
def running(directory, *arguments, **more):
    """A host that ends with the block."""
    host = start_host(directory, *arguments, **more)
    try:
        yield host
    finally:
        host.stop()
