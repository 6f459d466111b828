"""The API against its own description: schemathesis asks, the host must answer as it promised."""

import subprocess
import sys
import time

import pytest
from cluster import eventually

SEED = 20261115
EXAMPLES = 15

# It stops the host; and a WebSocket, which has tests of its own.
LEFT_OUT = ["/api/v1/host/stop", "/api/v1/live"]

# Texts with a grammar or a vocabulary that a schema cannot say (spans, metrics, names): for them
# a request that fits the schema may still be refused with 400. Everywhere else it may not.
SPEAKING_TEXTS = [
    "/api/v1/events",
    "/api/v1/login",
    "/api/v1/metrics",
    "/api/v1/nodes/{name}",
    "/api/v1/nodes/{name}/approve",
    "/api/v1/sessions",
    "/api/v1/sessions/capture",
    "/api/v1/sessions/{key}",
    "/api/v1/sessions/{key}/export",
    "/api/v1/sessions/{key}/stop",
    "/api/v1/settings",
    "/api/v1/tokens",
    "/api/v1/tokens/{id}",
    "/profiling/start",
    "/profiling/stop",
]


def config(sessions, also):
    """Real names among the made-up ones, so that the answers are not all `not found`."""
    # Not a fixed day: windows from then on would grow with every day.
    recently = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 300))
    names = ", ".join(f'"{name}"' for name in sessions)
    paths = ", ".join(f'"{path}"' for path in SPEAKING_TEXTS)
    return f"""
        [dictionaries]
        sessions = {{ values = [{names}] }}
        nodes = {{ values = ["alpha", "beta"] }}
        metrics = {{ values = ["gpu_utilization", "power_milliwatts", "node_memory_used_bytes"] }}
        times = {{ values = ["1s", "10m", "2h", "{recently}"] }}
        formats = {{ values = ["json", "legacy-json", "jsonl", "parquet"] }}

        [parameters]
        "path.key" = {{ dictionary = "sessions", probability = 0.5 }}
        "path.name" = {{ dictionary = "nodes", probability = 0.5 }}
        "query.metric" = {{ dictionary = "metrics", probability = 0.5 }}
        "query.from" = {{ dictionary = "times", probability = 0.5 }}
        "query.format" = {{ dictionary = "formats", probability = 0.7 }}

        [[operations]]
        include-path = [{paths}]
        checks.positive_data_acceptance.expected-statuses = {["2xx", 400, 401, 404, 409, 412, *also]}
    """


@pytest.fixture(scope="module")
def document(sim_host):
    return sim_host.json("/api/v1/openapi.json")


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", path, operation


@pytest.mark.parametrize("caller", ["admin", "local"])
def test_the_api_keeps_what_its_description_promises(sim_host, tmp_path, caller):
    eventually(lambda: sim_host.stored() > 10, "something to export")
    finished, running = f"finished-{caller}", f"running-{caller}"
    for name in (finished, running):
        assert sim_host.post("/profiling/start", {"name": name}).status == 200
    assert sim_host.post("/profiling/stop", {"name": finished}).status == 200
    # Without a token much is refused; the rest must be as it is described.
    also = [] if caller == "admin" else [403]
    (tmp_path / "schemathesis.toml").write_text(config([finished, running], also))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]
    command += [f"http://{sim_host.address}/api/v1/openapi.json", "--checks", "all"]
    command += ["--seed", str(SEED), "--max-examples", str(EXAMPLES), "--workers", "1"]
    command += ["--generation-database", "none", "--request-timeout", "30", "--no-color"]
    command += ["--continue-on-failure"]
    if caller == "admin":
        command += ["--header", f"Authorization: Bearer {sim_host.token}"]
    for path in LEFT_OUT:
        command += ["--exclude-path", path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sim_host.is_well()
    sim_host.wait_for_values(["alpha", "beta"])


def test_it_is_openapi_3_1_with_unique_operations(document):
    assert document["openapi"].startswith("3.1")
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


def test_parameters_stand_where_they_are_read(document):
    wrong = []
    for title, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            in_path = "{" + parameter["name"] + "}" in path
            if parameter["in"] != ("path" if in_path else "query"):
                wrong.append(f"{title}: `{parameter['name']}` in {parameter['in']}")
            needed = in_path or (path, parameter["name"]) == ("/api/v1/metrics", "metric")
            if parameter.get("required", False) != needed:
                wrong.append(f"{title}: `{parameter['name']}` required: {parameter.get('required')}")
    assert wrong == []


def test_bodies_that_may_be_left_out_are_not_required(document):
    wrong = []
    for title, _, operation in operations(document):
        body = operation.get("requestBody")
        if body and body.get("required", False) != (title == "POST /api/v1/sessions/capture"):
            wrong.append(f"{title}: required: {body.get('required')}")
    assert wrong == []


def test_every_failure_is_described_as_the_envelope(document):
    for title, _, operation in operations(document):
        codes = [code for code in operation["responses"] if code[0] in "45"]
        assert codes, title
    error = document["components"]["schemas"]["ErrorDetail"]
    assert {"code", "message", "request_id"} <= set(error["required"])
