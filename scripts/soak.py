#!/usr/bin/env python3
"""An hour of coming and going: memory, descriptors and disk of the host must stay flat.

Real agents with simulated GPUs come, go, are killed and come back under the same name or a new one; sessions are
opened, stopped and deleted; readers of live values come and go. Segments are small and short, and the budget is
small, so that sealing and retention run all the time. Every SAMPLE_SECONDS the host is looked at; the last third of
the run is compared with the third before it. In the end every gap must be one that retention made.

SOAK_SECONDS (3600), SOAK_AGENTS (20), SOAK_SEED (by the clock).
"""

import os
import random
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))

from rig import GSWARM, MIB, Host, Process, describe_machine, number_from, own_home, percentile, say, table  # noqa: E402
from rig import wait_until, workshop  # noqa: E402

SECONDS = number_from("SOAK_SECONDS", 3600)
AGENTS = number_from("SOAK_AGENTS", 20)
SEED = number_from("SOAK_SEED", int(time.time()))
STEP_SECONDS = 2
SAMPLE_SECONDS = 10
SESSION_STEPS = 10
# How much more the last third may need than the one before.
GROWTH_MAX = {"resident MiB": 1.10, "descriptors": 1.10, "disk MiB": 1.15, "threads": 1.25}
# Differences below these are noise.
NOISE = {"resident MiB": 4, "descriptors": 6, "disk MiB": 4, "threads": 4}

SMALL = {
    "GSWARM_STORE__SEGMENT_SIZE": "1MiB",
    "GSWARM_STORE__SEGMENT_AGE": "20s",
    "GSWARM_STORE__BUDGET": "24MiB",
}


class Churn:
    """Who is there, and what happens to them."""

    def __init__(self, directory, processes, host, dice):
        self.directory = directory
        self.processes = processes
        self.host = host
        self.dice = dice
        self.agents = {}
        self.sessions = []
        self.readers = []
        self.counts = {"starts": 0, "kills": 0, "stops": 0, "sessions": 0, "readers": 0}
        self.next_name = 0

    def start_agent(self, name):
        command = [
            GSWARM, "client", "connect", self.host.address, "--node-id", name,
            "--state-dir", self.directory / "agents" / name, "--devices", "sim:2xh100", "--freq", "200",
        ]
        agent = Process(name, command, self.directory / f"{name}.log", own_home(self.directory))
        self.processes.append(agent)
        self.agents[name] = agent
        self.counts["starts"] += 1

    def new_agent(self):
        self.next_name += 1
        self.start_agent(f"soak{self.next_name:05}")

    def end_agent(self, name):
        agent = self.agents.pop(name)
        if self.dice.random() < 0.5:
            agent.child.kill()
            agent.child.wait()
            self.counts["kills"] += 1
        else:
            agent.stop()
            self.counts["stops"] += 1
        self.processes.remove(agent)

    def step(self, number):
        name = self.dice.choice(sorted(self.agents))
        self.end_agent(name)
        # One in ten never comes back; somebody new takes its place.
        if self.dice.random() < 0.1:
            self.new_agent()
        else:
            self.start_agent(name)
        self.session_step(number)
        self.reader_step()

    def session_step(self, number):
        session = f"soak-{number}"
        self.host.post("/api/v1/sessions", {"name": session, "freq": 200})
        self.sessions.append(session)
        self.counts["sessions"] += 1
        if len(self.sessions) > SESSION_STEPS:
            self.end_session(self.sessions.pop(0))

    def end_session(self, name):
        self.host.post(f"/api/v1/sessions/{name}/stop", {})
        file = wait_until(f"the file of {name}", lambda: self.host.get(f"/api/v1/sessions/{name}").get("output_file"), self.host)
        self.host.request("DELETE", f"/api/v1/sessions/{name}").read()
        Path(file).unlink()

    def reader_step(self):
        """A WebSocket that is opened and never read, and closed without a word ten steps later."""
        reader = socket.create_connection(("127.0.0.1", self.host.port))
        reader.sendall(
            b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c29ha2luZyBnc3dhcm0h\r\n\r\n"
        )
        self.readers.append(reader)
        self.counts["readers"] += 1
        if len(self.readers) > SESSION_STEPS:
            self.readers.pop(0).close()


def sample(host):
    size = sum(file.stat().st_size for file in (host.data / "journal").rglob("*") if file.is_file())
    return {
        "resident MiB": host.memory() / MIB,
        "descriptors": len(os.listdir(f"/proc/{host.pid}/fd")),
        "threads": host.threads(),
        "disk MiB": size / MIB,
    }


def careful_sample(host):
    """Files go away while they are counted."""
    while True:
        try:
            return sample(host)
        except FileNotFoundError:
            host.check()


def compare(samples):
    third = len(samples) // 3
    rows, flat = [], True
    for what, most in GROWTH_MAX.items():
        first = percentile([one[what] for one in samples[:third]], 0.5)
        middle = percentile([one[what] for one in samples[third : 2 * third]], 0.5)
        last = percentile([one[what] for one in samples[2 * third :]], 0.5)
        highest = max(one[what] for one in samples)
        is_flat = last <= middle * most or last - middle <= NOISE[what]
        flat &= is_flat
        rows.append([what, f"{first:.1f}", f"{middle:.1f}", f"{last:.1f}", f"{highest:.1f}", "flat" if is_flat else "GROWS"])
    table(["", "first third", "second", "last", "highest", ""], rows)
    return flat


def gaps_but_expired(host):
    nodes = host.get("/api/v1/nodes")["nodes"]
    return [gap for node in nodes for gap in node["gaps"] if gap["reason"] not in ("expired",)]


def main():
    describe_machine()
    say(f"  {SECONDS} s, {AGENTS} agents, seed {SEED}")
    dice = random.Random(SEED)
    os.environ.update(SMALL)
    with workshop("soak") as (directory, processes):
        host = Host(directory, processes, "--sim")
        churn = Churn(directory, processes, host, dice)
        for _ in range(AGENTS):
            churn.new_agent()
        samples, number, start = [], 0, time.monotonic()
        next_sample = start + SAMPLE_SECONDS
        while time.monotonic() - start < SECONDS:
            time.sleep(STEP_SECONDS)
            number += 1
            churn.step(number)
            host.check()
            if time.monotonic() >= next_sample:
                next_sample += SAMPLE_SECONDS
                samples.append(careful_sample(host))
        status = host.get("/api/v1/status")
        lost = gaps_but_expired(host)
        say("  " + ", ".join(f"{count} {what}" for what, count in churn.counts.items()))
        stored, store = status["ingest"]["records_stored"], status["store"]
        say(f"  {stored} records stored, {store['segments_sealed']} segments sealed and kept, {status['nodes_total']} nodes known")
        flat = compare(samples)
        for gap in lost[:10]:
            say(f"  LOST {gap}")
        say(f"  gaps that retention did not make: {len(lost)}")
    sys.exit(0 if flat and not lost else 1)


if __name__ == "__main__":
    main()
