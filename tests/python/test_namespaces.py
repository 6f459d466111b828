"""The first steps between three machines: network namespaces, each with an address of its own.

What is typed is the quick start of the old documentation and what gswarm itself printed.
"""

import os
import pty
import re
import select
import shutil
import subprocess

import cluster
import pytest
from cluster import eventually

PORT = 8090


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True)


@pytest.fixture
def machines():
    """`head`, `one` and `two` on one switch."""
    if not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("network namespaces need root and `ip`")
    mark = f"gs{os.getpid() % 100_000}"
    names = {word: f"{mark}-{word}" for word in ("head", "one", "two")}
    bridge = f"{mark}br"
    try:
        if ip("netns", "add", names["head"], check=False).returncode != 0:
            pytest.skip("this machine makes no network namespaces")
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number, (word, name) in enumerate(names.items(), start=1):
            if word != "head":
                ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("link", "add", f"{mark}v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{mark}v{number}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in names.values():
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)


class Terminal:
    """A person at a machine: what is typed runs in its namespace, and its output is read like on a screen."""

    def __init__(self, name, directory):
        self.name, self.directory, self.screen, self.children = name, directory, "", []
        directory.mkdir()

    def command(self, line):
        assert line.startswith("gswarm "), line
        return ["ip", "netns", "exec", self.name, cluster.program(), *line.split()[1:]]

    def begin(self, line):
        """A command that goes on, with the screen as its terminal."""
        screen, inside = pty.openpty()
        child = subprocess.Popen(
            self.command(line), cwd=self.directory, env=cluster.environment_of(self.directory),
            stdin=subprocess.DEVNULL, stdout=inside, stderr=inside,
        )
        os.close(inside)
        self.children.append((child, screen))
        return child

    def read(self):
        for _, screen in self.children:
            while select.select([screen], [], [], 0)[0]:
                try:
                    self.screen += os.read(screen, 65_536).decode(errors="replace")
                except OSError:
                    break
        return self.screen

    def shows(self, pattern):
        return eventually(lambda: re.search(pattern, self.read()), f"`{pattern}` on the screen of {self.name}")

    def run(self, line):
        done = subprocess.run(
            self.command(line), cwd=self.directory, env=cluster.environment_of(self.directory),
            capture_output=True, text=True, timeout=cluster.DEADLINE_S,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def end(self):
        for child, screen in self.children:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            os.close(screen)
        self.children = []


@pytest.fixture
def terminals(machines, tmp_path):
    people = {word: Terminal(name, tmp_path / word) for word, name in machines.items()}
    yield people
    for person in people.values():
        person.end()


def test_the_quick_start_between_three_machines(terminals):
    head, one, two = terminals["head"], terminals["one"], terminals["two"]
    # 1, as it is written; simulated GPUs, for there are no others here.
    head.begin(f"gswarm host start --port {PORT} --http-port 8091 --model-port 9010 --sim")
    opening = head.shows(r"stop it and run\s+(gswarm host start[^\r\n]*--listen 0\.0\.0\.0)")[1]
    # Too early: the machine says what to type on the host.
    one.begin(f"gswarm client connect 10.77.0.1:{PORT} --resilient -n one --devices sim:2xh100")
    one.shows(r"on the host: gswarm host start\s+\(for other machines: --listen 0\.0\.0\.0\)")
    head.end()
    head.begin(opening)
    joining = head.shows(r"next, on each machine[^\r\n]*\s+(gswarm join \S+ --token gsw_\S+ --devices \S+)")[1]
    # 2, as it is written: it waits, and says what to type on the host.
    approving = one.shows(r"on the host: (gswarm nodes approve one)")[1]
    head.run(approving)
    one.shows(r"connected to 10\.77\.0\.1")
    # And with the line that the host printed; names are not known between these machines.
    two.begin(re.sub(r"join \S+", "join 10.77.0.1", joining) + " -n two")
    two.shows(r"connected to 10\.77\.0\.1")
    # 3, as it is written.
    head.run("gswarm profiler start --name training_run")
    assert re.search(r"training_run\s+open", head.run("gswarm profiler status"))
    recorded = r'"name":"training_run".*?"frame_count":([2-9]|\d\d)'
    eventually(lambda: re.search(recorded, head.run("gswarm profiler sessions --json")), "some frames")
    stopped = head.run("gswarm profiler stop --name training_run")
    assert "training_run.json" in stopped, stopped
    nodes = head.run("gswarm nodes")
    assert re.search(r"^one\s+healthy", nodes, re.M) and re.search(r"^two\s+healthy", nodes, re.M), nodes
    assert (head.directory / "training_run.json").stat().st_size > 1_000
