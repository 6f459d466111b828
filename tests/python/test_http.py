"""HTTP as scripts of the earlier tools use it, and as it answers to mistakes."""

import http.client
import json
import re
import shlex
import socket
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import pytest
from cluster import eventually, request, strict_json

CURL_CALLS = r"""
curl http://localhost:8091/status
curl -X POST http://localhost:8091/profiling/start -H "Content-Type: application/json" -d '{"name": "my_experiment"}'
curl -X POST http://localhost:8091/profiling/stop -H "Content-Type: application/json" -d '{"name": "my_experiment"}'
curl -X POST http://localhost:8091/profiling/stop -H "Content-Type: application/json" -d '{}'
curl http://localhost:8091/clients
curl http://localhost:8091/metrics/latest
curl http://localhost:8091/profiling/sessions
"""


def curl(host, line):
    """The call of one curl command line, made to this host."""
    words = shlex.split(line)[1:]
    method, headers, body, path = "GET", {}, None, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, value = words.pop(0).split(": ")
            headers[name] = value
        elif word == "-d":
            body = words.pop(0)
        else:
            path = word.removeprefix("http://localhost:8091")
    return request(host.address, method, path, body, headers)


def stop_all(host):
    assert host.post("/profiling/stop", {}).status == 200


def envelope(reply, status, code):
    """The error in the body, whose shape is the same wherever it comes from."""
    assert reply.status == status, reply
    error = reply.json()["error"]
    assert error["code"] == code
    assert error["message"] and "\n" not in error["message"]
    assert error["request_id"]
    assert isinstance(error["details"], dict)
    return error


def old_failure(reply, status, code):
    """An error of the old paths: the old fields beside the envelope."""
    error = envelope(reply, status, code)
    body = reply.json()
    assert body["success"] is False
    assert body["message"] == error["message"]
    return error


def has(body, **fields):
    for name, kind in fields.items():
        assert name in body, f"{name} is missing in {body}"
        assert isinstance(body[name], kind), f"{name} is {body[name]!r}"
        assert kind is bool or not isinstance(body[name], bool), f"{name} is {body[name]!r}"


NUMBER = (int, float)


def test_the_documented_curl_calls_work_word_for_word(sim_host):
    calls = CURL_CALLS.strip().splitlines()
    replies = [curl(sim_host, line) for line in calls]
    assert [reply.status for reply in replies] == [200] * len(calls)
    status, started, stopped, stopped_all, clients, latest, sessions = [r.json() for r in replies]
    assert status["is_profiling"] is False
    assert started["success"] and started["output_file"].endswith("my_experiment.json")
    assert stopped["success"] and stopped["output_file"].endswith("my_experiment.json")
    assert stopped_all["success"]
    assert clients["total_clients"] == 2
    assert set(latest["client_data"]) == {"alpha", "beta"}
    assert "my_experiment" in [session["name"] for session in sessions["sessions"]]
    assert strict_json((sim_host.output / "my_experiment.json").read_text())["session_name"] == "my_experiment"


def test_status_has_the_old_fields(sim_host):
    assert sim_host.post("/profiling/start", {"name": "for_status"}).status == 200
    body = sim_host.json("/status")
    stop_all(sim_host)
    has(
        body,
        freq=int,
        enable_bandwidth_profiling=bool,
        enable_nvlink_profiling=bool,
        is_profiling=bool,
        output_filename=str,
        frame_id_counter=int,
        connected_clients=list,
        total_gpus=int,
        gpu_info=dict,
    )
    assert "active_sessions" in body
    assert body["is_profiling"] is True
    assert body["output_filename"].endswith("for_status.json")
    assert body["total_gpus"] == 4
    assert sorted(body["connected_clients"]) == sorted(body["gpu_info"]) == ["alpha", "beta"]
    for client, gpus in body["gpu_info"].items():
        for index, gpu in enumerate(gpus):
            has(gpu, id=str, name=str, physical_idx=int, hostname=str)
            assert gpu["physical_idx"] == index
            assert gpu["id"] == f"{client}:{index}:{gpu['name']}"


def test_clients_have_the_old_fields(sim_host):
    body = sim_host.json("/clients")
    has(body, total_clients=int, clients=list)
    assert body["total_clients"] == len(body["clients"]) == 2
    for client in body["clients"]:
        has(client, client_id=str, hostname=str, gpu_count=int, gpus=list)
        assert client["gpu_count"] == len(client["gpus"]) == 2


def test_latest_has_the_old_fields(sim_host):
    body = sim_host.json("/metrics/latest")
    assert "timestamp" in body
    for client in body["client_data"].values():
        has(client, gpus_metrics=list, p2p_links=list, system_metrics=dict)
        assert {"dram_util", "disk_util"} <= set(client["system_metrics"])
        assert len(client["gpus_metrics"]) == 2
        for gpu in client["gpus_metrics"]:
            has(gpu, physical_idx=int, name=str, gpu_util=NUMBER, mem_util=NUMBER)
            assert 0 <= gpu["gpu_util"] <= 100 and 0 <= gpu["mem_util"] <= 100
            for field in ("dram_bw_gbps_rx", "dram_bw_gbps_tx", "nvlink_bw_gbps_rx", "nvlink_bw_gbps_tx"):
                assert field in gpu
        for link in client["p2p_links"]:
            assert {"local_gpu_physical_id", "remote_gpu_physical_id", "type"} <= set(link)
            assert "aggregated_max_bandwidth_gbps" in link


def test_links_name_both_gpus(sim_host):
    for client in sim_host.json("/metrics/latest")["client_data"].values():
        assert client["p2p_links"]
        for link in client["p2p_links"]:
            assert {"local_gpu_name", "remote_gpu_name"} <= set(link)


def test_sessions_have_the_old_fields(sim_host):
    for name in ("one", "two"):
        assert sim_host.post("/profiling/start", {"name": name}).status == 200
    assert sim_host.post("/profiling/stop", {"name": "one"}).status == 200
    body = sim_host.json("/profiling/sessions")
    has(body, total_sessions=int, active_sessions=int, sessions=list)
    assert body["total_sessions"] == len(body["sessions"])
    by_name = {session["name"]: session for session in body["sessions"]}
    for session in body["sessions"]:
        has(session, name=str, is_active=bool, start_time=str, frame_count=int, output_file=str)
    assert by_name["one"]["is_active"] is False and by_name["two"]["is_active"] is True
    assert body["active_sessions"] == sum(session["is_active"] for session in body["sessions"])
    stop_all(sim_host)


def test_many_sessions_at_once_are_stopped_one_by_one_or_together(sim_host):
    names = ["training_epoch_1", "memory_analysis", "gpu_utilization_test"]
    for name in names:
        assert sim_host.post("/profiling/start", {"name": name}).json()["success"]
    assert sim_host.post("/profiling/stop", {"name": names[0]}).json()["success"]
    active = sim_host.json("/profiling/sessions")
    assert {s["name"] for s in active["sessions"] if s["is_active"]} == set(names[1:])
    rest = sim_host.post("/profiling/stop", {}).json()
    assert rest["success"] and all(name in rest["message"] for name in names[1:])
    assert sim_host.json("/status")["is_profiling"] is False
    for name in names:
        assert strict_json((sim_host.output / f"{name}.json").read_text())["session_name"] == name


def test_failures_have_the_right_status_and_the_old_fields(sim_host):
    assert sim_host.post("/profiling/start", {"name": "stays"}).status == 200
    error = old_failure(sim_host.post("/profiling/stop", {"name": "unknown"}), 404, "not_found")
    assert error["details"]["reason"] == "SESSION_NOT_FOUND" and "unknown" in error["message"]
    assert sim_host.json("/status")["is_profiling"] is True, "a wrong name stopped something"
    old_failure(sim_host.post("/profiling/start", {"name": "stays"}), 409, "conflict")
    old_failure(sim_host.post("/profiling/start", {"report_metrics": ["nope"]}), 400, "invalid_argument")
    for freq in (0, -1, 99, 3_600_001, 2**62):
        old_failure(sim_host.post("/profiling/start", {"freq": freq}), 400, "invalid_argument")
    stop_all(sim_host)


def test_stopping_twice_gives_the_result_again(sim_host):
    assert sim_host.post("/profiling/start", {"name": "twice"}).status == 200
    first = sim_host.post("/profiling/stop", {"name": "twice"}).json()
    again = sim_host.post("/profiling/stop", {"name": "twice"}).json()
    assert first["success"] and again["success"]
    assert first["output_file"] == again["output_file"]


def test_a_file_that_was_deleted_is_not_promised(sim_host):
    assert sim_host.post("/profiling/start", {"name": "deleted"}).status == 200
    stopped = sim_host.post("/api/v1/sessions/deleted/stop").json()
    assert stopped["export_note"] is None
    Path(stopped["session"]["output_file"]).unlink()
    again = sim_host.post("/api/v1/sessions/deleted/stop").json()
    command = "gswarm profiler export --name deleted -o deleted.json"
    note = f"file no longer there: export it again with `{command}`"
    assert again["session"]["output_file"] is None and again["export_note"] == note
    # By id the command names the id: the name may mean a newer session by then.
    key = stopped["session"]["id"]
    by_id = sim_host.post(f"/api/v1/sessions/{key}/stop").json()
    assert f"--session-id {key} -o deleted.json" in by_id["export_note"]
    old = sim_host.post("/profiling/stop", {"name": "deleted"}).json()
    assert old["success"] and old["output_file"] is None and note in old["message"]


def test_a_name_used_again_never_overwrites_a_file(sim_host):
    files = []
    for _ in range(2):
        assert sim_host.post("/profiling/start", {"name": "again"}).status == 200
        files.append(sim_host.post("/profiling/stop", {"name": "again"}).json()["output_file"])
    assert files[0] != files[1]
    ids = {strict_json(open(file).read())["session_id"] for file in files}
    assert len(ids) == 2


NAMES_REFUSED = ["", ".", "..", "../../x", "a/b", "-x", ".hidden", "sp ace", "x\u0000y", "ünï", "x" * 129, "x" * 4000]


@pytest.mark.parametrize("name", NAMES_REFUSED, ids=lambda name: ascii(name)[:20])
def test_names_that_cannot_be_files_are_refused(sim_host, name):
    error = old_failure(sim_host.post("/profiling/start", {"name": name}), 400, "invalid_argument")
    assert len(error["message"]) < 1000
    envelope(sim_host.post("/api/v1/sessions", {"name": name}), 400, "invalid_argument")
    # No session can ever be called so, which is another mistake than a name that is not there.
    old_failure(sim_host.post("/profiling/stop", {"name": name}), 400, "invalid_argument")
    # An empty or dotted segment is no key but another path.
    if name not in ("", ".", ".."):
        path = f"/api/v1/sessions/{quote(name, safe='')}"
        envelope(sim_host.get(path), 400, "invalid_argument")
        envelope(sim_host.post(f"{path}/stop"), 400, "invalid_argument")
        envelope(sim_host.get(f"{path}/export"), 400, "invalid_argument")


BODIES_REFUSED = [
    "{",
    "}",
    "true",
    "1",
    '"name"',
    "[]",
    '["my_experiment"]',
    '{"name": 5}',
    '{"name": ["a"]}',
    '{"name": {"a": 1}}',
    '{"name": "a"} trailing',
    '{"name": "a", "name": "b"}',
    '{"name": "\\ud800"}',
    "name=a",
    b"\xff\xfe",
    b"\x00",
    "[" * 100_000,
    '{"a":' * 100_000,
]


@pytest.mark.parametrize("body", BODIES_REFUSED, ids=lambda body: ascii(body)[:24])
def test_wrong_bodies_are_refused_and_change_nothing(sim_host, body):
    assert sim_host.post("/profiling/start", {"name": "untouched"}).status == 200
    try:
        for path in ("/profiling/start", "/profiling/stop"):
            old_failure(sim_host.post(path, body), 400, "invalid_argument")
        for path in ("/api/v1/sessions", "/api/v1/sessions/stop", "/api/v1/sessions/capture"):
            envelope(sim_host.post(path, body), 400, "invalid_argument")
        patched = request(sim_host.address, "PATCH", "/api/v1/settings", body, sim_host.admin)
        envelope(patched, 400, "invalid_argument")
        sessions = sim_host.json("/status")["active_sessions"]
        assert [session["name"] for session in sessions] == ["untouched"]
    finally:
        stop_all(sim_host)


BODY_BYTES_MAX = 1024 * 1024


@pytest.mark.parametrize("path", ["/profiling/start", "/profiling/stop", "/api/v1/sessions"])
def test_bodies_that_are_too_large_are_refused(sim_host, path):
    def named(size):
        return '{"name":"' + "x" * (size - len('{"name":""}')) + '"}'

    just_over = sim_host.post(path, named(BODY_BYTES_MAX + 1))
    assert just_over.status in (400, 413), just_over
    assert just_over.json()["error"]["request_id"]
    for body in (named(8 * BODY_BYTES_MAX), iter([b'{"name":"'] + [b"x" * 65536] * 128)):
        try:
            assert sim_host.post(path, body).status in (400, 413)
        except ConnectionError:
            pass  # it hung up before all was sent, which this simple client takes for an error
    assert sim_host.json("/status")["is_profiling"] is False


def test_no_body_means_nothing_was_said(sim_host):
    started = sim_host.post("/profiling/start")
    assert started.status == 200 and started.json()["output_file"].startswith("profiling_")
    assert sim_host.post("/profiling/stop").json()["success"]
    assert sim_host.json("/status")["is_profiling"] is False


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/api/v1/nothing", "/api/v2/nodes", "/profiling", "/status/", "//status", "/STATUS", "/%00"]
    + ["/assets/../Cargo.toml", "/assets/%2e%2e%2fCargo.toml", "/..%2f..%2fetc/passwd", "/" + "x" * 8000],
    ids=lambda path: path[:24],
)
def test_unknown_paths_are_not_found(sim_host, path):
    error = envelope(sim_host.get(path), 404, "not_found")
    assert len(error["message"]) < 1000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/nodes/nobody", 404),
        ("/api/v1/nodes/%zz", 404),
        ("/api/v1/nodes/%", 404),
        ("/api/v1/nodes/%00", 404),
        ("/api/v1/nodes/%ff%fe", 400),
        ("/api/v1/nodes/%c3%28", 400),
        ("/api/v1/nodes/..%2f..%2fetc%2fpasswd", 404),
        ("/api/v1/nodes/alpha%2fbeta", 404),
        ("/api/v1/nodes/" + "n" * 20_000, 404),
        ("/api/v1/sessions/nothing", 404),
        ("/api/v1/sessions/00000000-0000-0000-0000-000000000000", 404),
        ("/api/v1/sessions/nothing/export", 404),
        ("/api/v1/sessions/nothing/export?format=xml", 400),
        ("/api/v1/metrics", 400),
        ("/api/v1/metrics?metric=nope", 400),
        ("/api/v1/metrics?metric=gpu_utilization&gpu=-1", 400),
        ("/api/v1/metrics?metric=gpu_utilization&from=yesterday", 400),
        ("/api/v1/metrics?metric=gpu_utilization&step=1us", 400),
        ("/api/v1/metrics?metric=gpu_utilization&from=1m&to=2m", 400),
        ("/api/v1/metrics?metric=%ff", 400),
        ("/api/v1/events?since=soon", 400),
        ("/api/v1/live", 400),
    ],
    ids=lambda value: str(value)[:50],
)
def test_wrong_questions_get_the_envelope(sim_host, path, status):
    envelope(sim_host.get(path), status, {400: "invalid_argument", 404: "not_found"}[status])


def test_percent_encoding_of_plain_letters_is_the_same_name(sim_host):
    assert sim_host.json("/api/v1/nodes/%61lph%61")["name"] == "alpha"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/status", {"GET", "HEAD"}),
        ("DELETE", "/clients", {"GET", "HEAD"}),
        ("PUT", "/profiling/start", {"POST"}),
        ("GET", "/profiling/start", {"POST"}),
        ("HEAD", "/profiling/stop", {"POST"}),
        ("POST", "/api/v1/nodes", {"GET", "HEAD"}),
        ("DELETE", "/api/v1/sessions", {"GET", "HEAD", "POST"}),
        ("POST", "/api/v1/settings", {"GET", "HEAD", "PATCH"}),
        ("OPTIONS", "/status", {"GET", "HEAD"}),
        ("TRACE", "/status", {"GET", "HEAD"}),
        ("BREW", "/status", {"GET", "HEAD"}),
    ],
)
def test_wrong_methods_say_which_are_allowed(sim_host, method, path, allowed):
    reply = request(sim_host.address, method, path)
    assert reply.status == 405, reply
    assert set(re.split(r",\s*", reply.headers["allow"])) == allowed
    if method != "HEAD":
        assert reply.json()["error"]["request_id"]


@pytest.mark.parametrize("path", ["/", "/status", "/clients", "/profiling/sessions", "/api/v1/nodes", "/health"])
def test_head_is_get_without_the_body(sim_host, path):
    reply = request(sim_host.address, "HEAD", path)
    assert reply.status == 200 and reply.body == b""
    assert reply.headers["content-type"].startswith("application/json")


def test_the_root_is_a_greeting_for_scripts_and_a_page_for_browsers(sim_host):
    for accept in (None, "*/*", "application/json"):
        reply = sim_host.get("/", headers={"Accept": accept} if accept else {})
        assert reply.status == 200
        has(reply.json(), message=str, version=str)
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
    page = sim_host.get("/", headers={"Accept": browser})
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert "<html" in text
    for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', text):
        assert sim_host.get(asset).status == 200, asset


def test_the_page_brings_its_icon_and_names_no_port(sim_host):
    page = sim_host.get("/", headers={"Accept": "text/html"})
    icon = re.search(r'<link rel="icon"[^>]* href="data:image/svg\+xml,([^"]+)"', page.body.decode())
    assert ElementTree.fromstring(unquote(icon[1])).tag.endswith("svg")
    assert "img-src 'self' data:" in page.headers["content-security-policy"]
    # Whoever looks at it came in through a port that works, which need not be the usual one.
    script = sim_host.get("/assets/app.js").body.decode()
    assert "location.port" in script and "8090" not in script


def test_every_answer_keeps_browsers_from_guessing(sim_host):
    for path in ("/status", "/", "/nothing", "/api/v1/openapi.json"):
        headers = sim_host.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_request_ids_differ(sim_host):
    ids = {sim_host.get("/nothing").json()["error"]["request_id"] for _ in range(20)}
    assert len(ids) == 20


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /status HTTP/9.9\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET /status HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
        b"GET /status HTTP/1.1\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100_000,
    ],
    ids=["word", "version", "length", "many-headers", "long-header", "half-http2", "tls", "zeros"],
)
def test_what_is_not_http_hurts_nobody(sim_host, raw):
    host, port = sim_host.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        except OSError:
            answer = b""  # hung up on
        assert not answer.startswith(b"HTTP/1.1 2"), answer
    assert sim_host.is_well()


def test_half_a_request_holds_up_nobody(sim_host):
    host, port = sim_host.address.rsplit(":", 1)
    half = [socket.create_connection((host, int(port)), timeout=30) for _ in range(100)]
    try:
        for connection in half:
            connection.sendall(b"POST /profiling/start HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{")
        assert sim_host.get("/status", timeout=20).status == 200
    finally:
        for connection in half:
            connection.close()
    assert sim_host.json("/status")["is_profiling"] is False, "half a body started a session"


def test_one_connection_serves_many_requests(sim_host):
    connection = http.client.HTTPConnection(sim_host.address, timeout=30)
    try:
        for path, status in (("/status", 200), ("/nothing", 404), ("/clients", 200)):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
            assert connection.sock is not None, "the connection was closed"
    finally:
        connection.close()


def test_a_session_of_the_past_comes_from_the_recording(sim_host):
    eventually(lambda: sim_host.stored() > 10, "a little past")
    reply = sim_host.post("/api/v1/sessions/capture", {"name": "past", "from": "1h"})
    assert reply.status == 201, reply
    session = reply.json()["session"]
    assert session["active"] is False and session["simulated"] is True
    frames = strict_json(sim_host.export("past"))["frames"]
    assert any(value is not None for frame in frames for value in frame["gpu_util"])


def test_pages_of_other_sites_are_refused(sim_host):
    for origin in ("http://elsewhere.example", "null", f"http://{sim_host.address}.elsewhere.example"):
        headers = {"Origin": origin}
        envelope(request(sim_host.address, "POST", "/api/v1/host/stop", {}, headers), 403, "permission_denied")
        envelope(request(sim_host.address, "GET", "/api/v1/status", headers=headers), 403, "permission_denied")
    own = {"Origin": f"http://{sim_host.address}"}
    assert request(sim_host.address, "GET", "/api/v1/status", headers=own).status == 200


def test_a_window_has_a_limit_of_frames(sim_host):
    capture = {"name": "aeons", "from": "1970-01-01T00:00:00Z", "freq": 100}
    refused = envelope(sim_host.post("/api/v1/sessions/capture", capture), 400, "invalid_argument")
    assert "frames" in refused["message"]
