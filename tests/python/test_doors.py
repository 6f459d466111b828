"""Who may do what: TLS, tokens, certificates, roles, and strangers at every door."""

import base64
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import cluster
import grpc
import pytest
from cluster import eventually, request

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "crates" / "gswarm-wire" / "proto"


def network_address():
    """An address of this machine that is not loopback: whoever uses it comes from the network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


NETWORK = network_address()
needs_network = pytest.mark.skipif(NETWORK is None, reason="this machine has no address but loopback")


def outside(host):
    """The host as others reach it."""
    return f"{NETWORK}:{host.port}"


def https(address, method, path, body=None, headers=None, identity=None):
    """One request over TLS; who answers is checked elsewhere."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if identity:
        context.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    connection = http.client.HTTPSConnection(address, timeout=cluster.DEADLINE_S, context=context)
    headers = dict(headers or {})
    if isinstance(body, dict):
        body = json.dumps(body)
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return cluster.Reply(answer.status, fields, answer.read())
    finally:
        connection.close()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def new_token(host, **wish):
    reply = host.post("/api/v1/tokens", wish, headers=host.admin)
    assert reply.status == 200, reply
    return reply.json()


@pytest.fixture
def joining(tmp_path):
    """Starts agents: `joining(address, "name", token=...)`; each machine has a directory of its own."""
    agents = []

    def start(address, name, token=None, *more):
        directory = tmp_path / f"machine-{len(agents)}"
        directory.mkdir()
        arguments = ["join", address, "-n", name, "--devices", "sim:2xh100", "--state-dir", directory / "state"]
        if token:
            arguments += ["--token", token]
        agent = cluster.Process([*arguments, *more], directory, directory / "agent.log")
        agent.identity = directory / "state" / "identity"
        agents.append(agent)
        return agent

    yield start
    for agent in agents:
        agent.stop()


def node_of(host, name):
    return next((node for node in host.json("/api/v1/nodes")["nodes"] if node["name"] == name), None)


def wait_connected(host, name):
    def connected():
        node = node_of(host, name)
        return node if node and node["connected"] else None

    return eventually(connected, f"{name} is connected")


# Joining


def test_a_token_lets_a_node_in_and_leaves_no_trace(host_of, joining):
    host = host_of("--sim")
    made = new_token(host, max_uses=2)
    agent = joining(host.address, "one", made["secret"])
    assert wait_connected(host, "one")["member"]
    assert (agent.identity / "key.pem").stat().st_mode & 0o777 == 0o600
    assert agent.identity.stat().st_mode & 0o777 == 0o700
    # The token stands neither in the command line, nor in a log, nor in a file of the host.
    command = Path(f"/proc/{agent.child.pid}/cmdline").read_bytes()
    assert b"--devices" in command and b"gsw_" not in command
    secret = made["secret"][20:40]
    for directory in (host.directory, agent.identity.parents[1]):
        for path in directory.rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
    assert host.get("/api/v1/tokens", headers=host.admin).json()["tokens"][0]["uses"] == 1


def refused(agent, *words):
    """The agent ended with a sentence that holds these words."""
    assert agent.wait() == 3, agent.said()
    said = agent.said()
    for word in words:
        assert word in said, said
    assert "panicked" not in said
    return said


def test_tokens_that_are_no_good_are_refused_with_what_to_do(host_of, joining):
    host, other = host_of("--sim"), host_of("--sim")
    refused(joining(host.address, "a", new_token(other)["secret"]), "is not the host", "another host", "token create")
    gone = new_token(host)
    assert request(host.address, "DELETE", f"/api/v1/tokens/{gone['token']['id']}", headers=host.admin).status == 200
    refused(joining(host.address, "b", gone["secret"]), "was revoked", "gswarm token create")
    short = new_token(host, life="1s")
    expires = short["token"]["expires"]
    eventually(lambda: host.json("/api/v1/status")["now"] > expires, "the token has expired")
    refused(joining(host.address, "c", short["secret"]), "has expired", "gswarm token create")
    once = new_token(host, max_uses=1)
    joining(host.address, "first", once["secret"])
    wait_connected(host, "first")
    # Replayed by somebody who saw it.
    refused(joining(host.address, "second", once["secret"]), "as often as it may", "gswarm token create")
    refused(joining(host.address, "d", new_token(host, role="viewer")["secret"]), "for people", "gswarm token create")
    # One that this host never made: right in every letter, with the right authority.
    raw = bytearray(base64.urlsafe_b64decode(once["secret"][4:]))
    raw[7] ^= 1
    import hashlib

    raw[-2:] = hashlib.sha256(raw[:-2]).digest()[:2]
    forged = "gsw_" + base64.urlsafe_b64encode(bytes(raw)).decode()
    refused(joining(host.address, "e", forged), "does not know the token", "gswarm token create")
    names = {node["name"] for node in host.json("/api/v1/nodes")["nodes"]}
    assert names == {"first"}
    assert host.is_well()


@needs_network
def test_a_token_goes_into_a_file_that_only_its_owner_reads(host_of):
    host = host_of("--sim", "--listen", NETWORK)
    done = host.run("token", "create", "--days", "30", "-o", "join")
    assert done.returncode == 0 and "gsw_" not in done.stdout, done
    file = host.directory / "join"
    assert file.stat().st_mode & 0o777 == 0o600
    arguments = ["join", outside(host), "-n", "imaged", "--devices", "sim:1xh100", "--state-dir", host.directory / "s"]
    log = host.directory / "imaged.log"
    host.agents.append(cluster.Process(arguments, host.directory, log, GSWARM_AGENT__TOKEN_FILE=str(file)))
    assert wait_connected(host, "imaged")["member"]
    assert host.run("token", "create", "--role", "viewer", "--max-uses", "3").returncode == 2


def test_two_nodes_race_for_the_last_use(host_of, joining):
    host = host_of("--sim")
    made = new_token(host, max_uses=1)
    agents = [joining(host.address, f"n{number}", made["secret"]) for number in range(4)]
    eventually(lambda: sum(not agent.alive() for agent in agents) == 3, "three of four are refused")
    assert host.get("/api/v1/tokens", headers=host.admin).json()["tokens"][0]["uses"] == 1


@needs_network
def test_without_a_token_a_node_waits_until_it_is_approved(host_of, joining):
    host = host_of("--sim", "--listen", NETWORK)
    agent = joining(outside(host), "shy")
    waiting = eventually(lambda: host.json("/api/v1/nodes")["waiting"], "somebody waits")
    assert waiting[0]["name"] == "shy" and waiting[0]["address"] == NETWORK
    eventually(lambda: f"gswarm nodes approve shy (key {waiting[0]['key']}" in agent.said(), "it says what to do")
    # Strangers cannot let each other in.
    assert host.post("/api/v1/nodes/shy/approve").status == 403
    assert https(outside(host), "POST", "/api/v1/nodes/shy/approve").status == 401
    done = host.run("nodes", "approve", "shy")
    assert done.returncode == 0, done.stderr
    assert wait_connected(host, "shy")["member"]
    assert host.json("/api/v1/nodes")["waiting"] == []


@needs_network
def test_a_node_that_waits_keeps_to_the_host_it_saw_first(host_of, joining):
    host = host_of("--sim", "--listen", NETWORK)
    port = host.port
    agent = joining(outside(host), "shy")
    eventually(lambda: "gswarm nodes approve shy" in agent.said(), "it waits")
    host.process.stop()
    # Somebody else takes the address, and would let anybody in.
    impostor = host_of("--sim", "--listen", NETWORK, ports=(port, 0, 0))
    eventually(lambda: "is not the host that this node trusts" in agent.said(), "it notices")
    assert impostor.json("/api/v1/nodes")["waiting"] == []


def test_a_removed_node_is_out_at_once_and_comes_back_with_a_token_only(host_of, joining):
    host = host_of("--sim")
    token = new_token(host)["secret"]
    agent = joining(host.address, "one", token)
    wait_connected(host, "one")
    done = host.run("nodes", "remove", "one")
    assert done.returncode == 0, done.stderr
    eventually(lambda: "was removed from the cluster" in agent.said(), "it is told")
    assert node_of(host, "one")["health"] == "removed" and not node_of(host, "one")["connected"]
    # Its certificate is worth nothing, whatever it is shown for.
    assert https(host.address, "GET", "/api/v1/status", identity=agent.identity).status == 401
    assert host.run("nodes", "remove", "one").returncode == 7
    # A node without a certificate has nothing to lose, and is not sent away.
    host.join("plain")
    assert host.run("nodes", "remove", "plain").returncode == 7
    assert node_of(host, "plain")["connected"]
    assert agent.stop() == 0
    state = agent.identity.parent
    arguments = ["join", host.address, "-n", "one", "--devices", "sim:2xh100", "--state-dir", state]
    back = cluster.Process([*arguments, "--token", new_token(host)["secret"]], state, state / "again.log")
    try:
        assert wait_connected(host, "one")["member"]
    finally:
        back.stop()


def test_a_member_comes_back_by_itself_after_both_were_killed(host_of, joining):
    host = host_of("--sim")
    agent = joining(host.address, "one", new_token(host, max_uses=1)["secret"])
    wait_connected(host, "one")
    agent.child.kill()
    agent.wait()
    host.process.child.kill()
    host.process.wait()
    data, port = host.data, host.port
    again = cluster.Process(
        ["host", "start", "--sim", "--port", port, "--single-port", "--data-dir", data]
        + ["--output-dir", host.output],
        host.directory,
        host.directory / "again.log",
    )
    state = agent.identity.parent
    arguments = ["join", host.address, "-n", "one", "--devices", "sim:2xh100", "--state-dir", state]
    back = cluster.Process(arguments, state, state / "again.log")
    try:
        eventually(lambda: (data / "run.json").exists() and again.alive() and _answers(host), "the host is back")
        assert wait_connected(host, "one")["member"]
    finally:
        back.stop()
        again.stop()


def _answers(host):
    try:
        return host.get("/api/v1/health").status == 200
    except OSError:
        return False


def test_certificates_are_renewed_before_they_end(host_of, joining):
    host = host_of("--sim", GSWARM_SECURITY__CERTIFICATE_LIFE="12s")
    agent = joining(host.address, "one", new_token(host, max_uses=1)["secret"])
    wait_connected(host, "one")
    first = (agent.identity / "certificate.pem").read_text()
    eventually(lambda: (agent.identity / "certificate.pem").read_text() != first, "a second certificate")
    second = (agent.identity / "certificate.pem").read_text()
    eventually(lambda: (agent.identity / "certificate.pem").read_text() != second, "a third one")
    # By now the first one is over, of the node and of the host: a new connection needs both.
    assert https(host.address, "GET", "/api/v1/status", identity=agent.identity).status == 403
    stored = host.stored()
    eventually(lambda: host.stored() > stored + 2, "records go on")
    assert "not renewed" not in host.process.said() + agent.said()


# Roles

ROLES = ["nobody", "node", "viewer", "local", "operator", "admin"]
VIEWER, LOCAL, OPERATOR, ADMIN, ANYBODY = "viewer", "local", "operator", "admin", None

# Every route with the least that may use it. The description of the API must name the same ones.
ROUTES = {
    ("GET", "/"): ANYBODY,
    ("GET", "/assets/app.js"): ANYBODY,
    ("POST", "/api/v1/login"): ANYBODY,
    ("GET", "/health"): VIEWER,
    ("GET", "/api/v1/health"): VIEWER,
    ("GET", "/api/v1/status"): VIEWER,
    ("GET", "/api/v1/whoami"): VIEWER,
    ("GET", "/api/v1/settings"): VIEWER,
    ("PATCH", "/api/v1/settings"): OPERATOR,
    ("GET", "/api/v1/retention"): VIEWER,
    ("POST", "/api/v1/host/stop"): ADMIN,
    ("GET", "/api/v1/tokens"): ADMIN,
    ("POST", "/api/v1/tokens"): ADMIN,
    ("DELETE", "/api/v1/tokens/{id}"): ADMIN,
    ("GET", "/api/v1/nodes"): VIEWER,
    ("GET", "/api/v1/nodes/{name}"): VIEWER,
    ("DELETE", "/api/v1/nodes/{name}"): ADMIN,
    ("POST", "/api/v1/nodes/{name}/approve"): ADMIN,
    ("GET", "/api/v1/sessions"): VIEWER,
    ("POST", "/api/v1/sessions"): LOCAL,
    ("POST", "/api/v1/sessions/capture"): LOCAL,
    ("POST", "/api/v1/sessions/stop"): LOCAL,
    ("GET", "/api/v1/sessions/{key}"): VIEWER,
    ("DELETE", "/api/v1/sessions/{key}"): OPERATOR,
    ("POST", "/api/v1/sessions/{key}/stop"): LOCAL,
    ("GET", "/api/v1/sessions/{key}/export"): VIEWER,
    ("GET", "/api/v1/metrics"): VIEWER,
    ("GET", "/api/v1/metrics/latest"): VIEWER,
    ("GET", "/api/v1/metrics/catalogue"): VIEWER,
    ("GET", "/api/v1/events"): VIEWER,
    ("GET", "/api/v1/live"): VIEWER,
    ("GET", "/api/v1/openapi.json"): VIEWER,
    ("GET", "/status"): VIEWER,
    ("GET", "/clients"): VIEWER,
    ("GET", "/metrics/latest"): VIEWER,
    ("GET", "/profiling/sessions"): VIEWER,
    ("POST", "/profiling/start"): LOCAL,
    ("POST", "/profiling/stop"): LOCAL,
}
NOT_DESCRIBED = {("GET", "/"), ("GET", "/assets/app.js"), ("GET", "/health"), ("GET", "/api/v1/openapi.json")}

METHODS = {
    "/gswarm.v1.Recorder/Stream": "node",
    "/gswarm.v1.Membership/Join": ANYBODY,
    "/gswarm.v1.Membership/Renew": "node",
    "/gswarm_profiler.ProfilerService/Connect": LOCAL,
    "/gswarm_profiler.ProfilerService/StreamMetrics": LOCAL,
    "/gswarm_profiler.ProfilerService/GetStatus": VIEWER,
    "/gswarm_profiler.ProfilerService/StartProfiling": LOCAL,
    "/gswarm_profiler.ProfilerService/StopProfiling": LOCAL,
    "/gswarm_profiler.ProfilerService/Exit": ADMIN,
    "/gswarm_profiler.ProfilerService/ReadClusterStatus": VIEWER,
    "/gswarm_profiler.ProfilerService/ReadNodeStatus": VIEWER,
    "/gswarm_profiler.ProfilerService/SetBandwidthProfiling": LOCAL,
    "/gswarm_profiler.ProfilerService/SetNVLinkProfiling": LOCAL,
}


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    """A host that is open to the network, and one caller of each role."""
    if NETWORK is None:
        pytest.skip("this machine has no address but loopback")
    directory = tmp_path_factory.mktemp("court")
    with cluster.running(directory, "--sim", "--listen", NETWORK, GSWARM_HTTP__FAILURES_PER_MINUTE="1000") as host:
        tokens = {role: new_token(host, role=role)["secret"] for role in ("viewer", "operator", "admin")}
        member = directory / "member"
        agent = cluster.Process(
            ["join", outside(host), "-n", "member", "--devices", "sim:1xh100", "--state-dir", member]
            + ["--token", new_token(host)["secret"]],
            directory,
            directory / "member.log",
        )
        host.agents.append(agent)
        wait_connected(host, "member")
        host.tokens, host.member = tokens, member / "identity"
        yield host


def ask(host, role, method, path, body=None):
    """A request as one of the roles makes it."""
    if role == "local":
        return request(f"127.0.0.1:{host.port}", method, path, body)
    identity = host.member if role == "node" else None
    headers = bearer(host.tokens[role]) if role in host.tokens else {}
    return https(outside(host), method, path, body, headers, identity)


def test_the_table_names_every_route(court):
    document = ask(court, "viewer", "GET", "/api/v1/openapi.json").json()
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == set(ROUTES) - NOT_DESCRIBED


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("method, path", ROUTES, ids=lambda part: part)
def test_every_route_admits_its_roles_and_no_others(court, role, method, path):
    needed = ROUTES[method, path]
    admitted = needed is None or ROLES.index(role) >= ROLES.index(needed)
    if admitted and path == "/api/v1/host/stop":
        # That it works is shown by stopping a host; here it would end the others' tests.
        return
    # Names that nobody has: whoever is admitted gets as far as `not found`.
    real = path.replace("{id}", "0" * 12).replace("{name}", "nobody").replace("{key}", "nothing")
    body = {"name": f"s-{role}"} if (method, path) == ("POST", "/api/v1/sessions") else None
    body = {"from": "soon"} if path.endswith("/capture") else body
    reply = ask(court, role, method, real, body)
    if not admitted:
        assert reply.status == (401 if role == "nobody" else 403), reply
        assert len(reply.json()["error"]["message"]) > 20
    else:
        assert reply.status not in (403, 500), reply
        # A login without a token is one that failed.
        assert reply.status != 401 or path == "/api/v1/login", reply


@pytest.fixture(scope="session")
def wire(tmp_path_factory):
    """Messages of our own protocol."""
    out = tmp_path_factory.mktemp("wire")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={out}", "gswarm.proto"], check=True
    )
    sys.path.insert(0, str(out))
    try:
        import gswarm_pb2
    finally:
        sys.path.remove(str(out))
    return gswarm_pb2


def channel_of(host, role):
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    if role == "local":
        return grpc.insecure_channel(f"127.0.0.1:{host.port}", options=options)
    authority = (host.data / "security" / "authority.pem").read_bytes()
    key = certificate = None
    if role == "node":
        key, certificate = ((host.member / name).read_bytes() for name in ("key.pem", "certificate.pem"))
    secrets = grpc.ssl_channel_credentials(authority, key, certificate)
    options.append(("grpc.ssl_target_name_override", "gswarm"))
    return grpc.secure_channel(outside(host), secrets, options=options)


def call(host, role, method, message, timeout=30):
    """What a call ends with."""
    metadata = [("authorization", f"Bearer {host.tokens[role]}")] if role in host.tokens else []
    with channel_of(host, role) as channel:
        if method.endswith(("Stream", "StreamMetrics")):
            caller = channel.stream_stream(method, lambda m: m, lambda b: b)
            answers = caller(iter([message]), metadata=metadata, timeout=timeout)
            try:
                return grpc.StatusCode.OK, list(answers)
            except grpc.RpcError as error:
                return error.code(), error.details()
        try:
            return grpc.StatusCode.OK, channel.unary_unary(method, lambda m: m, lambda b: b)(
                message, metadata=metadata, timeout=timeout
            )
        except grpc.RpcError as error:
            return error.code(), error.details()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.rsplit("/", 1)[1])
def test_every_grpc_method_admits_its_roles_and_no_others(court, role, method):
    needed = METHODS[method]
    admitted = needed is None or ROLES.index(role) >= ROLES.index(needed)
    if admitted and method.endswith("/Exit"):
        return
    code, details = call(court, role, method, b"")
    if not admitted:
        expected = grpc.StatusCode.UNAUTHENTICATED if role == "nobody" else grpc.StatusCode.PERMISSION_DENIED
        assert code == expected, details
        assert len(details) > 20
    elif method.endswith("/Renew") and role != "node":
        # Whatever else they may do, they are no node.
        assert code == grpc.StatusCode.UNAUTHENTICATED, details
    else:
        good = [grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND]
        if method.endswith("/StreamMetrics"):
            # Old agents have real GPUs, and this host takes simulated ones only.
            good.append(grpc.StatusCode.FAILED_PRECONDITION)
        if method.endswith("/Renew"):
            # Its certificate is fresh.
            good = [grpc.StatusCode.FAILED_PRECONDITION]
        assert code in good, (code, details)


# A malicious node


def hello(wire, node, name="x"):
    said = wire.Hello(protocol_min=1, protocol_max=1, agent_version="0", node_id=node, node_name=name)
    said.incarnation = 7
    said.simulated = True
    return wire.AgentMessage(hello=said).SerializeToString()


STREAM = "/gswarm.v1.Recorder/Stream"


def test_a_node_delivers_its_own_records_and_no_others(court, wire):
    member = node_of(court, "member")["node_id"]
    stranger = "01a1df6e-0000-7000-8000-000000000001"
    code, details = call(court, "node", STREAM, hello(wire, stranger))
    assert code == grpc.StatusCode.PERMISSION_DENIED and "certificate" in details
    # Neither can anybody on the host's own machine speak for a member, nor people with tokens.
    for role in ("local", "viewer", "operator", "admin"):
        code, details = call(court, role, STREAM, hello(wire, member))
        assert code == grpc.StatusCode.PERMISSION_DENIED, (role, code, details)
    # A member asks for somebody else's identity: it has another key.
    with channel_of(court, "node") as channel:
        join = channel.unary_unary("/gswarm.v1.Membership/Join", lambda m: m, lambda b: b)
        asked = wire.JoinRequest(
            token=new_token(court)["secret"], node_id=member, node_name="member", request_pem=REQUEST
        )
        with pytest.raises(grpc.RpcError) as refusal:
            join(asked.SerializeToString(), timeout=30)
        assert refusal.value.code() == grpc.StatusCode.ALREADY_EXISTS
        assert "nodes remove member" in refusal.value.details()


# Of a key that no node has.
REQUEST = (HERE.parents[1] / "fuzz" / "corpus" / "credentials" / "request-with-names").read_text()


def test_a_request_cannot_name_itself(court, wire, tmp_path):
    """The request asks for the names of the host and of another node: neither is signed."""
    node = "01a1df6e-0000-7000-8000-000000000002"
    asked = wire.JoinRequest(token=new_token(court)["secret"], node_id=node, node_name="liar", request_pem=REQUEST)
    code, answer = call(court, "nobody", "/gswarm.v1.Membership/Join", asked.SerializeToString())
    assert code == grpc.StatusCode.OK, answer
    (tmp_path / "c.pem").write_text(wire.JoinAnswer.FromString(answer).certificate_pem)
    shown = subprocess.run(["openssl", "x509", "-in", tmp_path / "c.pem", "-noout", "-text"], capture_output=True, text=True)
    assert f"URI:gswarm://node/{node}" in shown.stdout
    for wrong in ("DNS:gswarm", "000000000001", "Server Authentication", "CA:TRUE"):
        assert wrong not in shown.stdout, shown.stdout


def test_an_answer_that_was_lost_can_be_asked_for_again(court, wire):
    """The token is used up; the node that used it asks once more, and a stranger with it gets nothing."""
    node = "01a1df6e-0000-7000-8000-000000000004"
    secret = new_token(court, max_uses=1)["secret"]
    asked = wire.JoinRequest(token=secret, node_id=node, node_name="twice", request_pem=REQUEST).SerializeToString()
    for _ in range(2):
        code, details = call(court, "nobody", "/gswarm.v1.Membership/Join", asked)
        assert code == grpc.StatusCode.OK, details
    other = node[:-1] + "5"
    asked = wire.JoinRequest(token=secret, node_id=other, node_name="other", request_pem=REQUEST).SerializeToString()
    code, details = call(court, "nobody", "/gswarm.v1.Membership/Join", asked)
    assert code == grpc.StatusCode.UNAUTHENTICATED and "as often as it may" in details
    # Whoever has a certificate is seen, also before it says anything.
    silent = [member["node_id"] for member in court.json("/api/v1/nodes")["silent_members"]]
    assert node in silent
    done = court.run("nodes", "remove", node)
    assert done.returncode == 0, done.stderr
    assert node not in [member["node_id"] for member in court.json("/api/v1/nodes")["silent_members"]]


def test_rubbish_at_the_door_of_members_is_refused(court, wire):
    node = "01a1df6e-0000-7000-8000-000000000003"
    good = {"node_id": node, "node_name": "x", "request_pem": REQUEST}
    for wrong in (
        {"node_id": "me"},
        {"node_name": "../x"},
        {"node_name": ""},
        {"request_pem": ""},
        {"request_pem": "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"},
    ):
        asked = wire.JoinRequest(**{**good, "token": new_token(court)["secret"], **wrong})
        code, details = call(court, "nobody", "/gswarm.v1.Membership/Join", asked.SerializeToString())
        assert code == grpc.StatusCode.INVALID_ARGUMENT, (wrong, code, details)
    large = wire.JoinRequest(**{**good, "request_pem": "x" * 100_000})
    code, _ = call(court, "nobody", "/gswarm.v1.Membership/Join", large.SerializeToString())
    assert code in (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert court.is_well()


# Plain text and old clients


@needs_network
def test_plain_text_from_the_network_is_told_what_to_do(host_of, legacy):
    host = host_of("--sim", "--listen", NETWORK)
    reply = request(outside(host), "GET", "/api/v1/status")
    assert reply.status == 400 and b"this host speaks TLS" in reply.body and b"gswarm login" in reply.body
    with legacy.client(outside(host)) as client:
        with pytest.raises(grpc.RpcError) as refusal:
            client.GetStatus(legacy.pb.Empty(), timeout=5)
        assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE
    done = cluster.run(host.directory / "elsewhere", "status", "--host", outside(host))
    assert done.returncode == 3 and "speaks TLS" in done.stderr and f"gswarm login {outside(host)}" in done.stderr


@needs_network
def test_old_clients_come_in_from_named_networks_only(host_of, legacy):
    host = host_of("--sim", "--listen", NETWORK, "--legacy-from", f"{NETWORK}/32,10.99.0.0/16")
    with legacy.client(outside(host)) as client:
        assert client.GetStatus(legacy.pb.Empty(), timeout=30).freq > 0
        started = client.StartProfiling(legacy.pb.StartProfilingRequest(name="old"), timeout=30)
        assert started.success, started
        with pytest.raises(grpc.RpcError) as refusal:
            client.Exit(legacy.pb.Empty(), timeout=30)
        assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert request(outside(host), "GET", "/status").status == 200
    # What is new wants TLS and a token from them as well.
    assert request(outside(host), "GET", "/api/v1/status").status == 401
    assert request(outside(host), "POST", "/api/v1/tokens", {}).status == 401
    # A token in plain text would be everybody's.
    viewer = bearer(new_token(host, role="viewer")["secret"])
    assert request(outside(host), "GET", "/status", headers=viewer).status == 401
    assert request(outside(host), "POST", "/api/v1/login", {"token": "x"}).status == 401
    assert request(outside(host), "GET", "/status", headers={"Host": "evil.example"}).status == 403
    other = host_of("--sim", "--listen", NETWORK, "--legacy-from", "10.99.0.0/16")
    assert request(outside(other), "GET", "/status").status == 400


@needs_network
def test_an_agent_says_what_an_insecure_host_needs(host_of, joining):
    host = host_of("--sim", "--listen", NETWORK, "--insecure")
    agent = joining(outside(host), "one")
    eventually(lambda: "does not speak TLS" in agent.said() and "--insecure" in agent.said(), "it says so")
    joining(outside(host), "two", None, "--insecure")
    assert not wait_connected(host, "two")["member"]


@needs_network
def test_nothing_of_ours_is_readable_on_the_wire(host_of, joining):
    try:
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    except PermissionError:
        pytest.skip("capturing packets needs root")
    seen = bytearray()
    stop = threading.Event()

    def listen():
        sniffer.settimeout(0.2)
        while not stop.is_set():
            try:
                packet = sniffer.recv(65_536)
            except TimeoutError:
                continue
            if socket.inet_aton(NETWORK) in packet[:40]:
                seen.extend(packet)

    host = host_of("--sim", "--listen", NETWORK)
    token = new_token(host)["secret"]
    login = new_token(host, role="viewer", note="carol")["secret"]
    thread = threading.Thread(target=listen)
    thread.start()
    try:
        joining(outside(host), "wiretapped-node", token)
        wait_connected(host, "wiretapped-node")
        user = host.directory / "user"
        done = cluster.run(user, "login", outside(host), input=login)
        assert done.returncode == 0 and "carol" in done.stdout, done
        assert cluster.run(user, "nodes", "--host", outside(host)).returncode == 0
        stored = host.stored()
        eventually(lambda: host.stored() > stored + 3, "records on the wire")
    finally:
        stop.set()
        thread.join()
        sniffer.close()
    assert len(seen) > 20_000
    for word in ("wiretapped", "gpu_utilization", "gswarm.v1", "Recorder", "H100", "carol", "api/v1", "principal"):
        assert word.encode() not in seen, word
    assert token.encode()[10:40] not in seen and login.encode()[10:40] not in seen


# Pages of others in the operator's browser


def test_pages_of_other_sites_get_nothing(sim_host):
    evil = {"Origin": "http://evil.example"}
    for method, path in (("GET", "/api/v1/status"), ("POST", "/api/v1/sessions"), ("POST", "/profiling/stop")):
        for headers in (evil, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            reply = request(sim_host.address, method, path, headers=headers)
            assert reply.status == 403, (method, path, headers, reply)
            assert "access-control-allow-origin" not in reply.headers
    reply = request(sim_host.address, "OPTIONS", "/api/v1/sessions", headers={**evil, "Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in reply.headers
    named = request(sim_host.address, "GET", "/api/v1/status", headers=evil).json()["error"]["message"]
    assert "http.cors_origins" in named


def test_a_name_that_somebody_else_gave_gets_nothing(sim_host):
    """DNS rebinding: the page of evil.example asks evil.example, which now is this machine."""
    host = f"evil.example:{sim_host.port}"
    headers = {"Host": host, "Origin": f"http://{host}"}
    for method, path in (("GET", "/api/v1/status"), ("GET", "/api/v1/live"), ("POST", "/api/v1/sessions/stop")):
        reply = request(sim_host.address, method, path, headers=headers)
        assert reply.status == 403, reply
        assert "http.allowed_hosts" in reply.json()["error"]["message"]
    assert request(sim_host.address, "GET", "/api/v1/status", headers={"Host": f"localhost:{sim_host.port}"}).status == 200


def test_a_websocket_of_another_site_is_refused(sim_host):
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
    assert request(sim_host.address, "GET", "/api/v1/live", headers={**upgrade, "Origin": "http://evil.example"}).status == 403
    own = f"http://{sim_host.address}"
    with socket.create_connection(sim_host.address.rsplit(":", 1)) as raw:
        lines = [f"GET /api/v1/live HTTP/1.1", f"Host: {sim_host.address}", f"Origin: {own}"]
        lines += [f"{name}: {value}" for name, value in upgrade.items()]
        raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert raw.recv(12) == b"HTTP/1.1 101"


def test_sites_that_the_host_was_told_of_may_ask(host_of):
    host = host_of("--sim", GSWARM_HTTP__CORS_ORIGINS="https://grafana.example", GSWARM_HTTP__ALLOWED_HOSTS="gpu-head")
    known = {"Origin": "https://grafana.example"}
    reply = request(host.address, "GET", "/api/v1/status", headers=known)
    assert reply.status == 200 and reply.headers["access-control-allow-origin"] == "https://grafana.example"
    assert "access-control-allow-credentials" not in reply.headers
    asked = request(host.address, "OPTIONS", "/api/v1/sessions", headers={**known, "Access-Control-Request-Method": "POST"})
    assert asked.status == 204 and "POST" in asked.headers["access-control-allow-methods"]
    assert request(host.address, "GET", "/api/v1/status", headers={"Host": "gpu-head:8091"}).status == 200


@needs_network
def test_a_browser_logs_in_with_a_cookie_that_scripts_cannot_read(host_of):
    host = host_of("--sim", "--listen", NETWORK)
    secret = new_token(host, role="viewer")["secret"]
    page = https(outside(host), "GET", "/", headers={"Accept": "text/html"})
    assert page.status == 200 and "content-security-policy" in page.headers
    reply = https(outside(host), "POST", "/api/v1/login", {"token": secret})
    assert reply.status == 200 and reply.json()["role"] == "viewer"
    cookie = reply.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=Strict", "Path=/"))
    shown = {"Cookie": cookie.split(";")[0]}
    assert https(outside(host), "GET", "/api/v1/status", headers=shown).status == 200
    # A page of another site cannot use it, should a browser send it after all.
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert https(outside(host), "GET", "/api/v1/status", headers={**shown, **headers}).status == 403
    assert https(outside(host), "POST", "/api/v1/login", {"token": "gsw_nothing"}).status == 401


def read_frame(raw):
    """Kind and content of the next WebSocket message of a host, which are never split."""

    def exactly(count):
        data = b""
        while len(data) < count:
            piece = raw.recv(count - len(data))
            if not piece:
                raise ConnectionError("closed without a frame")
            data += piece
        return data

    first, length = exactly(2)
    if length == 126:
        length = int.from_bytes(exactly(2))
    elif length == 127:
        length = int.from_bytes(exactly(8))
    return first & 0x0F, exactly(length)


def test_a_reader_is_let_go_when_its_token_is_revoked(host_of):
    host = host_of("--sim")
    made = new_token(host, role="viewer")
    with socket.create_connection(host.address.rsplit(":", 1), timeout=cluster.DEADLINE_S) as raw:
        lines = ["GET /api/v1/live HTTP/1.1", f"Host: {host.address}", f"Authorization: Bearer {made['secret']}"]
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
        raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += raw.recv(1)
        assert head.startswith(b"HTTP/1.1 101")
        assert read_frame(raw)[0] == 1
        done = host.run("token", "revoke", made["token"]["id"])
        assert done.returncode == 0, done.stderr
        kind, content = 1, b""
        while kind != 8:
            kind, content = read_frame(raw)
        assert b"no longer good" in content


@needs_network
def test_no_page_speaks_grpc(court, wire):
    """What a browser could send over HTTP/2, with and without the words that give it away."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    connection = http.client.HTTPSConnection(f"127.0.0.1:{court.port}", timeout=30, context=context)
    connection.request("POST", "/gswarm_profiler.ProfilerService/StopProfiling", b"\0\0\0\0\0", {"Content-Type": "application/grpc"})
    assert connection.getresponse().getheader("grpc-status") == "9"
    connection.close()
    for metadata in ([("origin", "https://evil.example")], [("sec-fetch-site", "cross-site")]):
        with channel_of(court, "local") as channel:
            ask_status = channel.unary_unary("/gswarm_profiler.ProfilerService/GetStatus", lambda m: m, lambda b: b)
            with pytest.raises(grpc.RpcError) as refusal:
                ask_status(b"", metadata=metadata, timeout=30)
            assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_every_answer_has_its_guards(sim_host):
    for path in ("/", "/api/v1/status", "/nowhere", "/assets/app.js"):
        headers = sim_host.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    page = sim_host.get("/", headers={"Accept": "text/html"}).body.decode()
    import re

    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)
    assert scripts and not any(inside.strip() for inside in scripts)
    assert not re.search(r"\son\w+=|<style|style=|javascript:", page)


# Another user of the same machine


def test_other_users_of_the_machine_get_no_further_than_sessions(host_of):
    host = host_of("--sim")
    assert host.json("/api/v1/whoami") == {"principal": "local", "role": "local"}
    assert host.post("/api/v1/sessions", {"name": "theirs"}).status == 201
    assert host.post("/api/v1/sessions/theirs/stop").status == 200
    for method, path in (("DELETE", "/api/v1/sessions/theirs"), ("POST", "/api/v1/host/stop"), ("GET", "/api/v1/tokens")):
        assert request(host.address, method, path).status == 403
    modes = {path.name: path.stat().st_mode & 0o777 for path in (host.data, host.data / "security")}
    assert modes == {"data": 0o700, "security": 0o700}
    for path in [*(host.data / "security").iterdir(), *(host.directory / "home" / "hosts").iterdir()]:
        assert path.stat().st_mode & 0o777 == 0o600, path
    # A guess is as good as none, and guessing ends.
    wrong = [host.get("/api/v1/status", headers=bearer(f"gswl_{number:064x}")).status for number in range(40)]
    assert wrong[0] == 401 and wrong[-1] == 429 and set(wrong) == {401, 429}
    # Whoever is right is not held up by those who are not.
    assert host.get("/api/v1/tokens", headers=host.admin).status == 200
    host.stop()
    assert list((host.directory / "home" / "hosts").iterdir()) == []


# Limits


@needs_network
def test_limits_have_names_and_hold(host_of):
    host = host_of(
        "--sim",
        "--listen",
        NETWORK,
        GSWARM_HTTP__BODY_SIZE="2KiB",
        GSWARM_HTTP__HEADER_SIZE="16KiB",
        GSWARM_HTTP__JSON_DEPTH="5",
        GSWARM_HTTP__REQUESTS_PER_SECOND="5",
        GSWARM_HTTP__CONNECTIONS_PER_ADDRESS="8",
        GSWARM_HTTP__HEADER_TIME="1s",
    )
    assert host.post("/api/v1/sessions", {"note": "x" * 4_000}).status == 400
    deep = host.post("/api/v1/sessions", '{"a":' * 6 + "1" + "}" * 6)
    assert deep.status == 400 and "5 levels" in deep.json()["error"]["message"]
    assert host.get("/api/v1/status", headers={"X-Long": "x" * 60_000}).status in (400, 431)
    packed = host.post("/api/v1/sessions", b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"})
    assert packed.status == 400 and "compressed" in packed.json()["error"]["message"]
    # From the network: so many a second, and so many connections.
    secret = bearer(new_token(host, role="viewer")["secret"])
    statuses = [https(outside(host), "GET", "/api/v1/whoami", headers=secret).status for _ in range(30)]
    assert 429 in statuses and 200 in statuses and set(statuses) == {200, 429}
    message = eventually(
        lambda: next(
            (r.json()["error"]["message"] for r in [https(outside(host), "GET", "/api/v1/whoami", headers=secret)] if r.status == 429),
            None,
        ),
        "one too many",
    )
    assert "http.requests_per_second" in message
    context = ssl._create_unverified_context()
    idle = [context.wrap_socket(socket.create_connection((NETWORK, host.port))) for _ in range(8)]
    try:
        # A ninth gets no answer; a head that does not come ends the ones before.
        with pytest.raises(OSError):
            https(outside(host), "GET", "/")
        for waiting in idle:
            waiting.settimeout(20)
            assert waiting.recv(1) in (b"", b"H")
    finally:
        for waiting in idle:
            waiting.close()
    eventually(lambda: https(outside(host), "GET", "/").status in (200, 429), "others are served again")
    assert host.is_well()
    # This machine is exempt from both.
    assert {host.get("/api/v1/whoami").status for _ in range(60)} == {200}


def test_a_handshake_that_does_not_go_on_holds_up_nobody(host_of):
    host = host_of("--sim")
    silent = [socket.create_connection(host.address.rsplit(":", 1)) for _ in range(50)]
    half = [socket.create_connection(host.address.rsplit(":", 1)) for _ in range(50)]
    for connection in half:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    try:
        assert host.get("/api/v1/status").status == 200
        assert https(host.address, "GET", "/").status == 200
    finally:
        for connection in silent + half:
            connection.close()


def test_random_bytes_at_the_door_end_without_harm(host_of):
    host = host_of("--sim")
    import random

    random.seed(20261115)
    before, resident = host.json("/api/v1/status"), resident_mib(host)
    for _ in range(300):
        with socket.create_connection(host.address.rsplit(":", 1)) as raw:
            head = random.choice([b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
            try:
                raw.sendall(head + random.randbytes(random.randrange(2_000)))
            except OSError:
                pass
    assert host.is_well() and host.json("/api/v1/status")["version"] == before["version"]
    assert "panicked" not in host.process.said()
    assert resident_mib(host) < resident + 30


def resident_mib(host):
    status = Path(f"/proc/{host.process.child.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
