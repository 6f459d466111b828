"""Old clients: what they put on the wire, and what the host makes of it."""

import json
import math
import threading
import time

import grpc
import pytest
from cluster import eventually, running, strict_json

UPDATES = 30
PACE_S = 0.1
GPU_NAME = "NVIDIA A100-SXM4-80GB"
MINUTE_S = 60

# What really flowed, in KiB/s.
INTO_GPU_KIB = 2_000_000
OUT_OF_GPU_KIB = 1_000_000
NVLINK_IN_KIB = 3_000_000
NVLINK_OUT_KIB = 4_000_000


def gigabytes(kib):
    return kib * 1024 / 1e9


def update(pb, hostname, number, timestamp=None):
    """The `number`th message of a client with two GPUs; only the first has NVLink."""
    message = pb.MetricsUpdate(hostname=hostname, timestamp=timestamp)
    message.system_metrics.dram_util = 40.0
    message.system_metrics.disk_util = 62.5
    for index in range(2):
        gpu = message.gpus_metrics.add(physical_idx=index, name=GPU_NAME)
        gpu.gpu_util = (number + index) / 100
        gpu.mem_util = 0.25 + number / 1000
        # Swapped, as the old client had it.
        gpu.dram_bw_gbps_rx = OUT_OF_GPU_KIB
        gpu.dram_bw_gbps_tx = INTO_GPU_KIB
        gpu.nvlink_bw_gbps_rx = NVLINK_IN_KIB if index == 0 else math.nan
        gpu.nvlink_bw_gbps_tx = NVLINK_OUT_KIB if index == 0 else math.nan
        gpu.extra_metrics.update(
            {"temperature_celsius": 50 + index, "home_made": {"deep": [1, "two"]}, "word": "text"}
        )
    link = message.p2p_links.add(local_gpu_physical_id=0, remote_gpu_physical_id=1)
    link.local_gpu_name = link.remote_gpu_name = GPU_NAME
    link.type = "NVLINK"
    link.aggregated_max_bandwidth_gbps = 300.0
    return message


def paced(messages):
    for message in messages:
        yield message()
        time.sleep(PACE_S)


def numbered(legacy, hostname, with_time, count=UPDATES):
    def make(number):
        return lambda: update(legacy.pb, hostname, number, time.time() if with_time else None)

    return paced([make(number) for number in range(count)])


def stream(host, client, messages):
    """Sends all messages and ends the stream once the host has stored them."""
    messages = list(messages)
    wanted = host.stored() + len(messages)
    stored = threading.Event()

    def held_open():
        yield from messages
        stored.wait(MINUTE_S)

    answer = client.StreamMetrics.future(held_open(), timeout=2 * MINUTE_S)
    try:
        eventually(lambda: answer.done() or host.stored() >= wanted, "the updates are stored")
    finally:
        stored.set()
    answer.result()


def records(text):
    """Each record of a jsonl export as (node, {(device index, metric): value}, record)."""
    tables, found = {}, []
    for line in map(strict_json, text.splitlines()):
        if table := line.get("table"):
            tables[table["n"], table["i"], table["d"]] = table
        elif record := line.get("record"):
            values = record["b"].get("values")
            if values is None:
                continue
            table = tables[record["n"], record["i"], values["d"]]
            assert len(values["v"]) == len(table["columns"])
            cells = {}
            for column, value in zip(table["columns"], values["v"]):
                device = table["devices"][column["d"]]
                scope = device["scope"] if device["scope"] != "gpu" else device["index"]
                cells[scope, column["m"]] = value
            found.append((record["node"], cells, record))
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, legacy):
    """Two old clients, one with timestamps and one without, recorded by one session."""
    pb = legacy.pb
    seen = {}
    with running(tmp_path_factory.mktemp("legacy")) as host:
        with (
            legacy.client(host.address) as with_time,
            legacy.client(host.address) as oldest,
            legacy.client(host.address) as control,
        ):
            for client, hostname in ((with_time, "old-a"), (oldest, "old-b")):
                gpus = [pb.GPUInfo(physical_idx=index, name=GPU_NAME) for index in range(2)]
                answer = client.Connect(pb.InitialInfo(hostname=hostname, gpus=gpus))
                assert answer.success, answer
            assert control.SetBandwidthProfiling(pb.SetBandwidthProfilingRequest(enable=True)).success
            assert control.SetNVLinkProfiling(pb.SetNVLinkProfilingRequest(enable=True)).success
            start = pb.StartProfilingRequest(name="old_run", report_metrics=["temperature_celsius"])
            seen["started"] = control.StartProfiling(start)
            seen["again"] = control.StartProfiling(start)
            streams = [
                with_time.StreamMetrics.future(numbered(legacy, "old-a", True)),
                oldest.StreamMetrics.future(numbered(legacy, "old-b", False)),
            ]

            def both():
                status = control.GetStatus(pb.Empty())
                return sorted(status.connected_clients) == ["old-a", "old-b"] and status

            seen["status"] = eventually(both, "both clients in GetStatus")
            eventually(lambda: len(host.json("/metrics/latest")["client_data"]) == 2, "both have values")
            seen["cluster"] = control.ReadClusterStatus(pb.Empty())
            seen["node"] = control.ReadNodeStatus(pb.ReadNodeStatusRequest(node_id="old-b"))
            seen["no node"] = control.ReadNodeStatus(pb.ReadNodeStatusRequest(node_id="nobody"))
            seen["latest"] = host.json("/metrics/latest")
            seen["clients"] = host.json("/clients")
            for stream_of_one in streams:
                assert stream_of_one.result(timeout=MINUTE_S) == pb.Empty()
            seen["wrong stop"] = control.StopProfiling(pb.StopProfilingRequest(name="never_started"))
            seen["still"] = control.GetStatus(pb.Empty())
            seen["stopped"] = control.StopProfiling(pb.StopProfilingRequest(name="old_run"))
            seen["after"] = control.GetStatus(pb.Empty())
            seen["json"] = strict_json(host.export("old_run"))
            seen["file"] = strict_json((host.output / "old_run.json").read_text())
            seen["old json"] = strict_json(host.export("old_run", "legacy-json"))
            seen["records"] = records(host.export("old_run", "jsonl"))
        yield seen


def test_starting_and_stopping_answer_with_success(recorded):
    assert recorded["started"].success
    assert recorded["started"].output_file.endswith("old_run.json")
    assert not recorded["again"].success and "old_run" in recorded["again"].message
    assert not recorded["wrong stop"].success and "never_started" in recorded["wrong stop"].message
    assert recorded["still"].is_profiling, "a wrong name stopped something"
    assert recorded["stopped"].success
    assert not recorded["after"].is_profiling


def test_status_has_the_old_fields(recorded):
    status = recorded["status"]
    assert status.freq == 500
    assert status.enable_bandwidth_profiling and status.enable_nvlink_profiling
    assert status.is_profiling
    assert status.output_filename.endswith("old_run.json")
    assert status.frame_id_counter >= 0
    sessions = strict_json(status.active_sessions_json)
    assert "old_run" in json.dumps(sessions)


def test_cluster_and_node_status(recorded):
    cluster = recorded["cluster"]
    assert cluster.success and cluster.cluster_id
    assert {node.node_id for node in cluster.nodes} == {"old-a", "old-b"}
    for node in [*cluster.nodes, recorded["node"].node_status]:
        assert [gpu.gpu_id for gpu in node.gpus] == [0, 1]
        for gpu in node.gpus:
            assert 0 <= gpu.utilization <= 1
            assert gpu.dram_bandwidth == pytest.approx(gigabytes(INTO_GPU_KIB + OUT_OF_GPU_KIB))
        with_link, without_link = node.gpus
        assert with_link.nvlink_bandwidth == pytest.approx(gigabytes(NVLINK_IN_KIB + NVLINK_OUT_KIB))
        assert not math.isnan(without_link.nvlink_bandwidth)
    assert recorded["node"].success and recorded["node"].node_status.node_id == "old-b"
    assert not recorded["no node"].success and recorded["no node"].message


def test_every_update_is_recorded_once_in_our_units(recorded):
    for node in ("old-a", "old-b"):
        mine = [cells for name, cells, _ in recorded["records"] if name == node]
        assert len(mine) == UPDATES
        for number, cells in enumerate(mine):
            for index in range(2):
                assert cells[index, "gpu_utilization"] == pytest.approx(number + index)
                assert cells[index, "memory_used_percent"] == pytest.approx(25 + number / 10)
                assert cells[index, "pcie_rx_bytes_per_second"] == INTO_GPU_KIB * 1024
                assert cells[index, "pcie_tx_bytes_per_second"] == OUT_OF_GPU_KIB * 1024
                assert cells[index, "temperature_celsius"] == 50 + index
            assert cells[0, "nvlink_rx_bytes_per_second"] == NVLINK_IN_KIB * 1024
            assert cells[0, "nvlink_tx_bytes_per_second"] == NVLINK_OUT_KIB * 1024
            assert cells[1, "nvlink_rx_bytes_per_second"] is None
            assert cells[1, "nvlink_tx_bytes_per_second"] is None
            assert cells["node", "node_memory_used_percent"] == 40
            assert cells["node", "node_disk_used_percent"] == 62.5


def test_timestamps_count_where_there_are_some(recorded):
    for name, _, record in recorded["records"]:
        # Host time and receipt, in microseconds.
        assert record["t"] <= record["r"]
        if name == "old-b":
            assert record["t"] == record["r"], "without a timestamp the receipt counts"
    mine = [record for name, _, record in recorded["records"] if name == "old-a"]
    assert all(record["offset_us"] == 0 for record in mine), "the timestamp of the client counts"


def test_frames_are_percent_and_gigabytes(recorded):
    for session in (recorded["json"], recorded["file"]):
        ids = [f"{node}:{index}:{GPU_NAME}" for node in ("old-a", "old-b") for index in range(2)]
        assert session["session_name"] == "old_run"
        assert session["simulated"] is False
        assert sorted(node["name"] for node in session["nodes"]) == ["old-a", "old-b"]
        full = [frame for frame in session["frames"] if None not in frame["gpu_util"]]
        # Three seconds at two frames a second; the edges may be cut.
        assert len(full) >= 4
        for frame in full:
            assert frame["gpu_id"] == ids
            assert all(0 <= value <= UPDATES for value in frame["gpu_util"])
            assert frame["dram_bandwidth_rx"] == pytest.approx([gigabytes(INTO_GPU_KIB)] * 4, abs=1e-3)
            assert frame["dram_bandwidth_tx"] == pytest.approx([gigabytes(OUT_OF_GPU_KIB)] * 4, abs=1e-3)
            both = gigabytes(INTO_GPU_KIB + OUT_OF_GPU_KIB)
            assert frame["dram_bandwidth"] == pytest.approx([both] * 4, abs=1e-3)
            assert frame["extra_metrics"]["temperature_celsius"] == [50, 51, 50, 51]
        # The numbers grow in every client, so they grow from frame to frame.
        utils = [frame["gpu_util"] for frame in full]
        assert all(a <= b for one, next_one in zip(utils, utils[1:]) for a, b in zip(one, next_one))
        assert utils[-1][0] > 15, "a fraction was taken for percent"


def test_nothing_is_called_missing(recorded):
    # The session is older than the first record: that is no loss.
    session = recorded["json"]
    assert session["incomplete_nodes"] == []
    assert session["gaps"] == []
    assert session["covered_from"] == session["start_time"]


def test_frames_have_memory_of_gpus_and_nodes(recorded):
    full = [frame for frame in recorded["json"]["frames"] if None not in frame["gpu_util"]]
    for frame in full:
        assert all(value is not None and 25 <= value <= 28 for value in frame["gpu_memory"]), frame
        assert frame["dram_util"] == [40, 40], frame
        assert frame["disk_util"] == [62.5, 62.5], frame
    for device in recorded["json"]["summary_by_device"].values():
        assert 25 <= device["avg_gpu_memory"] <= 28
    for client in recorded["json"]["summary_by_client"].values():
        assert client["avg_dram_util"] == 40 and client["avg_disk_util"] == 62.5


def test_frames_show_nvlink_only_where_there_is_some(recorded):
    full = [frame for frame in recorded["json"]["frames"] if None not in frame["gpu_util"]]
    for frame in full:
        shown = {link["id1"]: link for link in frame["gpu_bandwidth"] if link["rx"] is not None}
        assert set(shown) == {f"{node}:0:{GPU_NAME}" for node in ("old-a", "old-b")}
        for link in shown.values():
            assert link["rx"] == pytest.approx(gigabytes(NVLINK_IN_KIB), abs=1e-3)
            assert link["tx"] == pytest.approx(gigabytes(NVLINK_OUT_KIB), abs=1e-3)


def test_the_old_shape_has_fractions_as_text(recorded):
    session = recorded["old json"]
    assert set(session) >= {"frames", "summary_by_device", "summary_by_client", "request_time_info"}
    full = [frame for frame in session["frames"] if "nan" not in frame["gpu_util"]]
    assert full
    for frame in full:
        assert isinstance(frame["frame_id"], int)
        # Local time, no zone.
        assert "Z" not in frame["time"] and "+" not in frame["time"]
        for field in ("gpu_util", "gpu_memory", "dram_util", "disk_util"):
            assert all(isinstance(text, str) and 0 <= float(text) <= 1 for text in frame[field]), frame
        assert [float(text) for text in frame["dram_bandwidth_rx"]] == pytest.approx(
            [gigabytes(INTO_GPU_KIB)] * 4, abs=1e-3
        )
    for device in session["summary_by_device"].values():
        assert set(device) == {"avg_gpu_util", "avg_gpu_memory"}
    assert set(session["summary_by_client"]) == {"old-a", "old-b"}


def test_the_old_shape_has_links_and_extra_metrics(recorded):
    for frame in recorded["old json"]["frames"]:
        assert "extra_metrics" in frame, frame.keys()
        for link in frame["gpu_bandwidth"]:
            assert set(link) == {"id1", "id2", "utilization"}


def test_http_shows_old_clients_in_the_same_units(recorded):
    latest = recorded["latest"]["client_data"]
    assert set(latest) == {"old-a", "old-b"}
    for client in latest.values():
        with_link, without_link = client["gpus_metrics"]
        for gpu in (with_link, without_link):
            assert 0 <= gpu["gpu_util"] <= UPDATES
            assert 25 <= gpu["mem_util"] <= 28
            assert gpu["dram_bw_gbps_rx"] == pytest.approx(gigabytes(INTO_GPU_KIB))
            assert gpu["dram_bw_gbps_tx"] == pytest.approx(gigabytes(OUT_OF_GPU_KIB))
        assert with_link["nvlink_bw_gbps_rx"] == pytest.approx(gigabytes(NVLINK_IN_KIB))
        assert without_link["nvlink_bw_gbps_rx"] is None
        assert client["system_metrics"] == {"dram_util": 40, "disk_util": 62.5}
    clients = recorded["clients"]
    assert clients["total_clients"] == 2
    for client in clients["clients"]:
        assert client["gpu_count"] == 2
        assert client["gpus"][1]["id"] == f"{client['hostname']}:1:{GPU_NAME}"


def test_http_shows_the_links_old_clients_name(recorded):
    for client in recorded["latest"]["client_data"].values():
        (link,) = client["p2p_links"]
        assert (link["local_gpu_physical_id"], link["remote_gpu_physical_id"]) == (0, 1)
        assert link["aggregated_max_bandwidth_gbps"] == 300


@pytest.fixture(scope="module")
def plain_host(tmp_path_factory):
    with running(tmp_path_factory.mktemp("plain")) as host:
        yield host


def test_old_metric_names_are_understood(plain_host, legacy):
    pb = legacy.pb
    with legacy.client(plain_host.address) as client:
        for metric in ("gpu_utilization", "gpu_memory", "gpu_dram_bandwidth", "gpu_bubble"):
            start = pb.StartProfilingRequest(name=f"with_{metric}", report_metrics=[metric])
            assert client.StartProfiling(start).success, metric
        wrong = client.StartProfiling(pb.StartProfilingRequest(name="x", report_metrics=["no_such"]))
        assert not wrong.success and "no_such" in wrong.message
        assert client.StopProfiling(pb.StopProfilingRequest()).success, "no name stops all"
        assert not client.GetStatus(pb.Empty()).is_profiling
        for name in ("../../x", "a/b", "x" * 4000, "sp ace"):
            answer = client.StartProfiling(pb.StartProfilingRequest(name=name))
            assert not answer.success and answer.message, name
        unnamed = client.StartProfiling(pb.StartProfilingRequest())
        assert unnamed.success and unnamed.output_file.startswith("profiling_")
        assert client.StopProfiling(pb.StopProfilingRequest()).success


def test_switches_work_both_ways(plain_host, legacy):
    pb = legacy.pb
    with legacy.client(plain_host.address) as client:
        for enable in (True, False):
            assert client.SetBandwidthProfiling(pb.SetBandwidthProfilingRequest(enable=enable)).success
            assert client.SetNVLinkProfiling(pb.SetNVLinkProfilingRequest(enable=enable)).success
            status = client.GetStatus(pb.Empty())
            assert status.enable_bandwidth_profiling is enable
            assert status.enable_nvlink_profiling is enable


def strange(pb, hostname):
    """Updates no sane client sends; each must be taken or passed over, none may end the stream."""
    nan, infinity = math.nan, math.inf
    for value in (nan, infinity, -infinity, -1.0, 1.7, 1e308):
        message = pb.MetricsUpdate(hostname=hostname)
        message.system_metrics.dram_util = value
        message.system_metrics.disk_util = value
        gpu = message.gpus_metrics.add(physical_idx=0, name=GPU_NAME)
        gpu.gpu_util = gpu.mem_util = gpu.dram_bw_gbps_rx = gpu.dram_bw_gbps_tx = value
        gpu.nvlink_bw_gbps_rx = gpu.nvlink_bw_gbps_tx = value
        gpu.extra_metrics.fields["temperature_celsius"].number_value = value
        yield message
    for timestamp in (nan, infinity, -1.0, 0.0, 1e300, time.time() + 3600, time.time() - 86400):
        yield update(pb, hostname, 1, timestamp)
    yield pb.MetricsUpdate(hostname=hostname)
    yield pb.MetricsUpdate(hostname="another-name-in-the-same-stream")
    twice = update(pb, hostname, 2)
    twice.gpus_metrics[1].physical_idx = 0
    yield twice
    negative = update(pb, hostname, 3)
    negative.gpus_metrics[0].physical_idx = -1
    yield negative
    named = update(pb, hostname, 4)
    named.gpus_metrics[0].name = "\u202e\x00\n" + "x" * 10_000
    yield named
    many = update(pb, hostname, 5)
    for index in range(2, 64):
        many.gpus_metrics.add(physical_idx=index, name=GPU_NAME, gpu_util=0.5)
    yield many
    yield update(pb, hostname, 42)


def test_strange_updates_never_end_the_stream(plain_host, legacy):
    pb = legacy.pb
    hostnames = ["strange", "", "../../etc", "h" * 5000, "höst name", "\x00"]
    with legacy.client(plain_host.address) as client:
        assert client.StartProfiling(pb.StartProfilingRequest(name="strange")).success
        for hostname in hostnames:
            stream(plain_host, client, strange(pb, hostname))
        assert client.StopProfiling(pb.StopProfilingRequest(name="strange")).success
        names = [node.node_id for node in client.ReadClusterStatus(pb.Empty()).nodes]
        assert len(set(names)) == len(names)
    for name in names:
        assert 1 <= len(name) <= 128 and "/" not in name, name
    session = strict_json(plain_host.export("strange"))
    for frame in session["frames"]:
        for field in ("gpu_util", "gpu_memory", "dram_util", "disk_util"):
            assert all(value is None or 0 <= value <= 100 for value in frame[field]), frame
    strict_json(plain_host.export("strange", "legacy-json"))
    assert records(plain_host.export("strange", "jsonl"))
    strict_json(plain_host.get("/metrics/latest").body)
    assert plain_host.is_well()


def test_a_stream_that_ends_well_was_kept_whole(plain_host, legacy):
    """The answer to a stream says that it arrived, however fast it came."""
    pb = legacy.pb
    with legacy.client(plain_host.address) as client:
        assert client.StartProfiling(pb.StartProfilingRequest(name="burst")).success
        for burst in range(10):
            hostname = f"burst-{burst}"
            client.StreamMetrics((update(pb, hostname, n) for n in range(300)), timeout=MINUTE_S)
        assert client.StopProfiling(pb.StopProfilingRequest(name="burst")).success
    found = records(plain_host.export("burst", "jsonl"))
    kept = {f"burst-{n}": sum(name == f"burst-{n}" for name, _, _ in found) for n in range(10)}
    assert kept == {name: 300 for name in kept}


def test_a_client_that_comes_back_goes_on(plain_host, legacy):
    pb = legacy.pb
    with legacy.client(plain_host.address) as client:
        assert client.StartProfiling(pb.StartProfilingRequest(name="back")).success
        for round_number in range(3):
            before = plain_host.stored()
            hold = threading.Event()

            def messages():
                for number in range(5):
                    yield update(pb, "comes-back", round_number * 5 + number)
                hold.wait(MINUTE_S)

            call = client.StreamMetrics.future(messages())
            eventually(lambda: plain_host.stored() >= before + 5, "five records")
            # Gone without a goodbye, as when its process is killed.
            call.cancel()
            hold.set()
        assert client.StopProfiling(pb.StopProfilingRequest(name="back")).success
        found = records(plain_host.export("back", "jsonl"))
        utils = [cells[0, "gpu_utilization"] for name, cells, _ in found if name == "comes-back"]
        assert sorted(utils) == pytest.approx(list(range(15)))


def test_unknown_calls_and_garbage_are_refused_politely(plain_host):
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(plain_host.address, options=options) as channel:
        for path, code in (
            ("/gswarm_profiler.ProfilerService/NoSuchCall", grpc.StatusCode.UNIMPLEMENTED),
            ("/no.such.Service/Call", grpc.StatusCode.UNIMPLEMENTED),
            ("/gswarm_profiler.ProfilerService/Connect", None),
        ):
            call = channel.unary_unary(path)
            with pytest.raises(grpc.RpcError) as refused:
                call(b"\xff\xff\xff\xff garbage", timeout=MINUTE_S)
            if code:
                assert refused.value.code() == code, path
            else:
                assert refused.value.code() in (
                    grpc.StatusCode.INTERNAL,
                    grpc.StatusCode.INVALID_ARGUMENT,
                )
    assert plain_host.is_well()


def test_real_clients_are_not_for_a_simulated_host(host_of, legacy):
    host = host_of("--sim")
    with legacy.client(host.address) as client, pytest.raises(grpc.RpcError) as refused:
        client.StreamMetrics(iter([update(legacy.pb, "real", 1)]), timeout=MINUTE_S)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION, refused.value


def test_exit_stops_the_host(host_of, legacy):
    host = host_of()
    with legacy.client(host.address) as client:
        with pytest.raises(grpc.RpcError) as refused:
            client.Exit(legacy.pb.Empty(), timeout=MINUTE_S)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        shown = [("authorization", f"Bearer {host.token}")]
        client.Exit(legacy.pb.Empty(), timeout=MINUTE_S, metadata=shown)
    assert host.process.wait() == 0, host.process.said()
    assert not (host.data / "run.json").exists()
