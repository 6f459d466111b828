"""Hosts for the tests: each lives as long as its fixture and is ended by its process id."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

import cluster

HERE = Path(__file__).resolve().parent


@pytest.fixture
def host_of(tmp_path):
    """Starts hosts for one test: `host_of("--sim")`."""
    hosts = []

    def start(*arguments, **more):
        hosts.append(cluster.start_host(tmp_path / f"host{len(hosts)}", *arguments, **more))
        return hosts[-1]

    yield start
    for host in hosts:
        host.stop()


@pytest.fixture(scope="module")
def sim_host(tmp_path_factory):
    """A simulated host with the nodes `alpha` and `beta`, two GPUs each; shared by one file."""
    with cluster.running(tmp_path_factory.mktemp("sim"), "--sim") as host:
        host.join_all(["alpha", "beta"])
        yield host


@pytest.fixture(scope="session")
def legacy(tmp_path_factory):
    """Messages and client of the old protocol, generated from legacy.proto."""
    import grpc_tools

    out = tmp_path_factory.mktemp("stubs")
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"-I{well_known}"]
        + [f"--python_out={out}", f"--grpc_python_out={out}", str(HERE / "legacy.proto")],
        check=True,
    )
    sys.path.insert(0, str(out))
    try:
        import legacy_pb2
        import legacy_pb2_grpc
    finally:
        sys.path.remove(str(out))

    @contextmanager
    def client(address):
        # Each old client is a process of its own: no sharing of connections between them.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(address, options=options) as channel:
            yield legacy_pb2_grpc.ProfilerServiceStub(channel)

    return SimpleNamespace(pb=legacy_pb2, client=client)
