"""The WebSocket at /api/v1/live: what it sends, and what a slow or rude reader can do to the rest."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import websocket
from cluster import eventually, strict_json, trial

DEADLINE_S = 60


class Watcher:
    """A reader of the live stream."""

    def __init__(self, host, receive_bytes=None):
        options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)] if receive_bytes else []
        self.socket = websocket.create_connection(
            f"ws://{host.address}/api/v1/live", timeout=DEADLINE_S, sockopt=options
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def next(self):
        return strict_json(self.socket.recv())

    def until(self, kind, wanted=lambda message: True):
        """The first message of this kind that is wanted; others before it are passed over."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            message = self.next()
            if message["type"] == kind and wanted(message):
                return message
        raise AssertionError(f"no {kind} came")

    def say(self, message):
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def closing(self):
        """The code with which the host says goodbye."""
        while True:
            opcode, data = self.socket.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big") if data else None


def goodbye(watcher):
    try:
        return watcher.closing()
    except (websocket.WebSocketException, ConnectionError) as error:
        pytest.fail(f"the connection broke off without a close frame: {error!r}", pytrace=False)


def shape(node):
    """Checks that devices, columns and cells of a snapshot belong together."""
    assert node["node_id"] and node["table"]
    for device in node["devices"]:
        identity, scope, index, name = device
        assert identity and name and isinstance(index, int)
        assert scope in ("gpu", "link", "node", "disk", "nic")
    for device, metric in node["columns"]:
        assert 0 <= device < len(node["devices"]) and metric
    assert len({tuple(column) for column in node["columns"]}) == len(node["columns"])
    assert len(node["cells"]) == len(node["columns"])


def test_first_hello_then_a_snapshot_of_every_node(sim_host):
    with Watcher(sim_host) as watcher:
        hello, snapshot = watcher.next(), watcher.next()
    assert hello["type"] == "hello"
    assert hello["simulated"] is True
    assert hello["insecure"] is False
    assert hello["version"] == sim_host.json("/")["version"]
    assert snapshot["type"] == "snapshot"
    assert sorted(node["node"] for node in snapshot["nodes"]) == ["alpha", "beta"]
    for node in snapshot["nodes"]:
        shape(node)
        assert node["simulated"] is True and node["health"] == "healthy" and node["time"]
        assert sum(device[1] == "gpu" for device in node["devices"]) == 2


def test_values_fit_the_columns_of_the_snapshot(sim_host):
    with Watcher(sim_host) as watcher:
        nodes = {node["node"]: node for node in watcher.until("snapshot")["nodes"]}
        seen = {name: [] for name in nodes}
        while any(len(values) < 3 for values in seen.values()):
            message = watcher.until("values")
            node = nodes[message["node"]]
            assert message["table"] == node["table"]
            assert len(message["cells"]) == len(node["columns"])
            for (device, metric), value in zip(node["columns"], message["cells"]):
                if metric == "gpu_utilization":
                    assert node["devices"][device][1] == "gpu" and 0 <= value <= 100
                assert value is None or isinstance(value, (int, float))
            seen[message["node"]].append(message["time"])
    for times in seen.values():
        assert times == sorted(set(times)), "times grow"


def test_a_subscription_leaves_out_other_nodes(sim_host):
    with Watcher(sim_host) as watcher:
        watcher.until("snapshot")
        watcher.say({"type": "subscribe", "nodes": ["beta"]})
        snapshot = watcher.until("snapshot")
        assert [node["node"] for node in snapshot["nodes"]] == ["beta"]
        for _ in range(5):
            assert watcher.until("values")["node"] == "beta"
        watcher.say({"type": "subscribe", "nodes": []})
        assert watcher.until("snapshot")["nodes"] == []
        watcher.say({"type": "subscribe"})
        assert len(watcher.until("snapshot")["nodes"]) == 2


def test_a_session_that_starts_is_an_event(sim_host):
    with Watcher(sim_host) as watcher, Watcher(sim_host) as quiet:
        quiet.until("snapshot")
        quiet.say({"type": "subscribe", "events": False})
        quiet.until("snapshot")
        watcher.until("snapshot")
        assert sim_host.post("/profiling/start", {"name": "watched"}).status == 200
        event = watcher.until("event", lambda event: event["kind"] == "session_started")
        assert "watched" in event["message"]
        assert event["severity"] == "info" and event["time"]
        assert {"node", "device", "code"} <= set(event)
        assert sim_host.post("/profiling/stop", {"name": "watched"}).status == 200
        watcher.until("event", lambda event: event["kind"] == "session_stopped")
        for _ in range(6):
            assert quiet.next()["type"] in ("values", "snapshot")


def test_a_node_that_joins_and_leaves_is_told(host_of):
    host = host_of("--sim")
    with Watcher(host) as watcher:
        assert watcher.until("snapshot")["nodes"] == []
        agent = host.join("late")
        snapshot = watcher.until("snapshot", lambda message: any(n["columns"] for n in message["nodes"]))
        (node,) = snapshot["nodes"]
        assert node["node"] == "late"
        shape(node)
        values = watcher.until("values")
        assert values["table"] == node["table"] and len(values["cells"]) == len(node["columns"])
        assert agent.stop() == 0
        watcher.until("event", lambda event: event["node"] == "late" and "connected" not in event["message"][:9])


GARBAGE = [
    "garbage",
    "{",
    "null",
    "[]",
    '{"type": "subscribe", "nodes": 5}',
    '{"type": "conquer"}',
    '{"nodes": ["alpha"]}',
]


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_ends_with_a_goodbye(sim_host, text):
    with Watcher(sim_host) as watcher:
        watcher.until("snapshot")
        watcher.say(text)
        # Unsupported, invalid or against the rules, in the words of the protocol.
        assert goodbye(watcher) in (1002, 1003, 1007, 1008)
    assert sim_host.is_well()


def test_too_large_a_message_hurts_nobody(sim_host):
    with Watcher(sim_host) as watcher:
        watcher.until("snapshot")
        try:
            watcher.say(json.dumps({"type": "subscribe", "nodes": ["x" * 10_000_000]}))
            watcher.closing()
        except (websocket.WebSocketException, OSError):
            pass
    assert sim_host.is_well()


def test_pings_are_answered(sim_host):
    with Watcher(sim_host) as watcher:
        watcher.until("snapshot")
        watcher.socket.ping("are you there")
        while True:
            opcode, data = watcher.socket.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_PONG:
                break
        assert data == b"are you there"


def test_a_close_is_returned(sim_host):
    with Watcher(sim_host) as watcher:
        watcher.until("snapshot")
        watcher.socket.send_close(1000)
        assert goodbye(watcher) == 1000


def test_a_host_that_stops_says_goodbye(host_of):
    host = host_of("--sim")
    with Watcher(host) as watcher:
        watcher.until("snapshot")
        host.process.child.terminate()
        assert goodbye(watcher) == 1001
    assert host.process.wait() == 0


# More than the host keeps for one reader and the buffers of the system together.
FAST_UPDATES = 9_000
FAST_STREAMS = 3
FAST_GPUS = 16
# What the host keeps for one reader is about twice as much.
AHEAD_MAX = 1_500


def full_update(pb, hostname, number):
    message = pb.MetricsUpdate(hostname=hostname)
    for index in range(FAST_GPUS):
        message.gpus_metrics.add(
            physical_idx=index,
            name="A100",
            gpu_util=(number % 100) / 100,
            mem_util=0.123456789,
            dram_bw_gbps_rx=1_234_567.25 + number,
            dram_bw_gbps_tx=7_654_321.75 + number,
            nvlink_bw_gbps_rx=math.pi * 1e6,
            nvlink_bw_gbps_tx=math.e * 1e6,
        )
    return message


class EagerReader:
    """A reader in a process of its own that takes everything; killed with the block."""

    def __init__(self, host):
        script = Path(__file__).with_name("eager_reader.py")
        command = [sys.executable, script, host.address, str(FAST_UPDATES)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.counts = strict_json(self.process.stdout.readline())
        self.listener = threading.Thread(target=self.listen)

    def listen(self):
        for line in self.process.stdout:
            self.counts = strict_json(line)

    def told(self):
        """Each stored record is told as values, or shown in a snapshot when its table is new."""
        return self.counts["values"] + self.counts["snapshot"] - 1

    def __enter__(self):
        self.listener.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.listener.join(DEADLINE_S)
        self.process.wait(DEADLINE_S)
        self.process.stdout.close()


def test_a_reader_that_lags_is_told_and_then_goes_on(host_of, legacy):
    """Old clients send as fast as the one of two readers takes it; the other hardly reads."""
    with trial("a live reader that does not read, beside one that does") as report:
        host = host_of()
        with EagerReader(host) as eager:
            lag(host, legacy, eager)
            eventually(lambda: eager.told() >= FAST_UPDATES, f"all updates: {eager.counts}")
            assert eager.counts["lagged"] == 0, eager.counts
        lost = FAST_UPDATES - min(FAST_UPDATES, eager.told())
        report.update(rounds=1, faults=1, records=FAST_UPDATES, lost=lost)


def lag(host, legacy, eager):
    stored = threading.Event()

    def send(hostname):
        def updates():
            for number in range(FAST_UPDATES // FAST_STREAMS):
                # The host may be slower in telling than in storing: never more ahead than it keeps.
                while number * FAST_STREAMS > eager.told() + AHEAD_MAX and not stored.is_set():
                    time.sleep(0.01)
                yield full_update(legacy.pb, hostname, number)
            stored.wait(DEADLINE_S * 2)

        with legacy.client(host.address) as client:
            client.StreamMetrics(updates(), timeout=DEADLINE_S * 2)

    with Watcher(host, receive_bytes=4096) as slow:
        slow.until("snapshot")
        senders = [threading.Thread(target=send, args=(f"fast-{n}",)) for n in range(FAST_STREAMS)]
        for sender in senders:
            sender.start()
        try:
            # One message now and then, so that the host does not take the reader for dead.
            end = time.monotonic() + 100
            while host.stored() < FAST_UPDATES:
                assert time.monotonic() < end, f"{host.stored()} of {FAST_UPDATES} stored"
                assert slow.next()["type"] != "lagged", "the backlog is smaller than it was thought"
                time.sleep(0.2)
        finally:
            stored.set()
            for sender in senders:
                sender.join()
        assert slow.until("lagged")["dropped"] > 0
        nodes = slow.until("snapshot")["nodes"]
        assert len(nodes) == FAST_STREAMS
        for node in nodes:
            shape(node)
        # Behind no more: what happens now arrives.
        assert host.post("/profiling/start", {"name": "after_the_lag"}).status == 200
        slow.until("event", lambda event: "after_the_lag" in event["message"])


def test_readers_that_never_read_do_not_slow_the_recording(host_of):
    """Several agents at 100 ms with stopped readers: every record of the session is there."""
    host = host_of("--sim")
    names = ["n1", "n2", "n3", "n4"]
    host.join_all(names)
    stopped = [Watcher(host, receive_bytes=4096) for _ in range(10)]
    try:
        start = host.post("/api/v1/sessions", {"name": "fast", "freq": 100})
        assert start.status == 201, start
        before = host.stored()
        # Eight seconds of the four agents, as it would be without anybody watching.
        began = time.monotonic()
        eventually(lambda: host.stored() >= before + 4 * 80, "320 records at 10 a second each")
        assert time.monotonic() - began < 40
        assert host.post("/api/v1/sessions/fast/stop", {}).status == 200
    finally:
        for watcher in stopped:
            watcher.socket.close(timeout=0)
    lines = [strict_json(line) for line in host.export("fast", "jsonl").splitlines()]
    assert not [line for line in lines if "gap" in line]
    records = [line["record"] for line in lines if "record" in line]
    for name in names:
        mine = sorted(record["s"] for record in records if record["node"] == name)
        assert len(mine) >= 70
        assert mine == list(range(mine[0], mine[0] + len(mine))), "a number is missing or twice"
