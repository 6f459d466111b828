"""One router on all ports: whatever is asked, any port answers it."""

import os
import subprocess

import pytest
import websocket
from cluster import free_ports, program, request, start_host, strict_json


def on_three_ports(directory):
    """A host and its addresses; tries again when another process took a port in between."""
    for attempt in range(5):
        ports = free_ports(3)
        try:
            host = start_host(directory / str(attempt), "--sim", ports=ports)
            return host, [f"127.0.0.1:{port}" for port in ports]
        except AssertionError as error:
            refusal = error
    raise refusal


@pytest.fixture(scope="module")
def three_ports(tmp_path_factory):
    host, addresses = on_three_ports(tmp_path_factory.mktemp("ports"))
    try:
        host.join("alpha")
        yield host, addresses
    finally:
        host.stop()


@pytest.fixture(params=["main", "http", "model"])
def address(request, three_ports):
    _, addresses = three_ports
    return dict(zip(["main", "http", "model"], addresses))[request.param]


def test_the_host_names_its_ports(three_ports):
    host, addresses = three_ports
    assert host.addresses == addresses
    assert host.json("/api/v1/status")["addresses"] == addresses


def test_old_http(address):
    for path in ("/", "/status", "/clients", "/metrics/latest", "/profiling/sessions", "/health"):
        assert request(address, "GET", path).status == 200


def test_new_http(address):
    for path in ("nodes", "sessions", "status", "events", "metrics/latest", "openapi.json"):
        assert request(address, "GET", f"/api/v1/{path}").status == 200


def test_old_grpc(address, legacy):
    with legacy.client(address) as client:
        status = client.GetStatus(legacy.pb.Empty(), timeout=60)
        assert list(status.connected_clients) == ["alpha"]
        started = client.StartProfiling(legacy.pb.StartProfilingRequest(name="by_grpc"), timeout=60)
        assert started.success
    # What one protocol began, the other ends.
    stopped = request(address, "POST", "/profiling/stop", {"name": "by_grpc"})
    assert stopped.status == 200 and stopped.json()["success"]


def test_live(address):
    connection = websocket.create_connection(f"ws://{address}/api/v1/live", timeout=60)
    try:
        assert strict_json(connection.recv())["type"] == "hello"
    finally:
        connection.close()


def test_agents_join(three_ports, address):
    host, addresses = three_ports
    name = f"by-{addresses.index(address)}"
    joined = type(host)(host.process, host.directory, [address])
    try:
        joined.join(name)
    finally:
        for agent in joined.agents:
            assert agent.stop() == 0, agent.said()


@pytest.mark.parametrize("prefix", ["", "http://"])
def test_commands(tmp_path, address, prefix):
    environment = {"HOME": str(tmp_path), "GSWARM_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    for words in (["status"], ["nodes"], ["profiler", "sessions"]):
        line = [program(), *words, "--host", prefix + address, "--json"]
        done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        assert strict_json(done.stdout)


def test_one_port_alone_serves_everything(host_of, legacy):
    host = host_of("--sim")
    assert len(host.addresses) == 1
    host.join("alpha")
    with legacy.client(host.address) as client:
        assert list(client.GetStatus(legacy.pb.Empty(), timeout=60).connected_clients) == ["alpha"]
    assert host.json("/status")["connected_clients"] == ["alpha"]
