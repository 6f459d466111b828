#!/usr/bin/env python3
"""Runs known PyTorch loads on a real GPU and compares what gswarm recorded with what the load did
and with what nvidia-smi said. Prints one Markdown table; see docs/validation-h200.md.

usage: real_gpu.py PATH_OF_GSWARM [SECONDS_PER_LOAD]
"""
import json, os, statistics, subprocess, sys, tempfile, threading, time

import torch

BINARY = os.path.abspath(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
METRICS = ("sm_activity,sm_occupancy,tensor_activity,fp32_activity,fp16_activity,"
           "device_memory_activity,device_memory_bandwidth_bytes_per_second,power_milliwatts,"
           "temperature_celsius,clock_sm_mhz,memory_controller_utilization,clock_event_reasons")
WARM = 1.5  # seconds of each load that are left out on both sides


def sync():
    torch.cuda.synchronize()


def loop(seconds, step, unit_per_step):
    """Repeats step for the time and gives units per second."""
    done, start = 0, time.time()
    while time.time() - start < seconds:
        for _ in range(4):
            step()
            done += 1
        sync()
    return done * unit_per_step / (time.time() - start)


def gemm(dtype, size):
    a = torch.randn(size, size, device="cuda", dtype=dtype)
    b = torch.randn(size, size, device="cuda", dtype=dtype)
    out = torch.empty(size, size, device="cuda", dtype=dtype)
    return lambda: torch.matmul(a, b, out=out), 2 * size**3 / 1e12


def load_idle(seconds):
    time.sleep(seconds)
    return "-"


def load_bf16(seconds):
    step, tera = gemm(torch.bfloat16, 8192)
    return f"{loop(seconds, step, tera):.0f} TFLOP/s"


def load_fp32(seconds):
    torch.backends.cuda.matmul.allow_tf32 = False
    step, tera = gemm(torch.float32, 8192)
    return f"{loop(seconds, step, tera):.1f} TFLOP/s"


def load_half_duty(seconds):
    step, _ = gemm(torch.bfloat16, 8192)
    start = time.time()
    while time.time() - start < seconds:
        begin = time.time()
        while time.time() - begin < 0.05:
            step()
            sync()
        time.sleep(0.05)
    return "50 ms on, 50 ms off"


def load_copy(seconds):
    source = torch.empty(2**30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    rate = loop(seconds, lambda: target.copy_(source), 2 * source.numel() * 4 / 1e9)
    return f"{rate:.0f} GB/s read + write"


def load_pcie_in(seconds):
    host = torch.empty(2**28, dtype=torch.float32, pin_memory=True)
    device = torch.empty(2**28, device="cuda", dtype=torch.float32)
    rate = loop(seconds, lambda: device.copy_(host, non_blocking=True), host.numel() * 4 / 1e9)
    return f"{rate:.1f} GB/s host to GPU"


def load_pcie_out(seconds):
    host = torch.empty(2**28, dtype=torch.float32, pin_memory=True)
    device = torch.empty(2**28, device="cuda", dtype=torch.float32)
    rate = loop(seconds, lambda: host.copy_(device, non_blocking=True), host.numel() * 4 / 1e9)
    return f"{rate:.1f} GB/s GPU to host"


def load_one_block(seconds):
    """A kernel on one multiprocessor: utilisation says 100 %, almost nothing runs."""
    x = torch.zeros(32, device="cuda")
    start = time.time()
    while time.time() - start < seconds:
        for _ in range(200):
            torch.cumsum(x, 0, out=x)
        sync()
    return "one block at a time"


LOADS = [("idle", load_idle), ("bf16 GEMM 8192", load_bf16), ("half-duty bf16", load_half_duty),
         ("fp32 GEMM 8192", load_fp32), ("device copy 4 GiB", load_copy),
         ("PCIe in", load_pcie_in), ("PCIe out", load_pcie_out), ("tiny kernels", load_one_block)]


class Smi(threading.Thread):
    """nvidia-smi beside the load, once a second."""

    QUERY = "utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm"

    def __init__(self):
        super().__init__(daemon=True)
        self.rows, self.over = [], threading.Event()

    def run(self):
        while not self.over.is_set():
            answer = subprocess.run(
                ["nvidia-smi", f"--query-gpu={self.QUERY}", "--format=csv,noheader,nounits", "-i", "0"],
                capture_output=True, text=True)
            cells = answer.stdout.strip().split(",")
            if len(cells) == 5:
                self.rows.append((time.time(), [float(cell) for cell in cells]))
            self.over.wait(0.7)


def mean(values):
    values = [value for value in values if value is not None]
    return statistics.mean(values) if values else None


def cell(value, scale=1.0, digits=1):
    return "-" if value is None else f"{value / scale:.{digits}f}"


def gswarm(*arguments, check=True):
    return subprocess.run([BINARY, *arguments], check=check, capture_output=True, text=True)


def frames_of(name):
    session = json.load(open(f"{name}.json"))
    first, last = session["frames"][0], session["frames"][-1]
    from datetime import datetime
    at = lambda frame: datetime.fromisoformat(frame["time"]).timestamp()
    return [f for f in session["frames"] if at(first) + WARM <= at(f) <= at(last) - 0.5], session


def main():
    os.chdir(tempfile.mkdtemp(prefix="gswarm-validation-"))
    os.environ["GSWARM_HOME"] = os.path.join(os.getcwd(), "home")
    host = subprocess.Popen([BINARY, "host", "start", "--enable-bandwidth", "--freq", "200"],
                            stdout=open("host.log", "w"), stderr=subprocess.STDOUT)
    agent = subprocess.Popen([BINARY, "client", "connect", "127.0.0.1:8090", "-n", "gpu-node"],
                             stdout=open("agent.log", "w"), stderr=subprocess.STDOUT)
    try:
        for _ in range(100):
            if "gpu-node" in gswarm("nodes", check=False).stdout:
                break
            time.sleep(0.2)
        print(gswarm("nodes", check=False).stdout, flush=True)
        print(gswarm("doctor", check=False).stdout, flush=True)
        gswarm("profiler", "start", "--name", "warmup", "--freq", "100")
        time.sleep(2)
        print("| load | its own rate | util % smi / gswarm | power W smi / gswarm | memory MiB smi / gswarm "
              "| temp °C smi / gswarm | SM % | tensor % | fp32 % | device memory GB/s (%) | PCIe in / out GB/s "
              "| SM clock MHz smi / gswarm |")
        print("|" + "---|" * 12, flush=True)
        for number, (title, load) in enumerate(LOADS):
            name = f"load{number}"
            smi = Smi()
            gswarm("profiler", "start", "--name", name, "--freq", "100", "-r", METRICS, "--enable-bandwidth")
            begun = time.time()
            smi.start()
            rate = load(SECONDS)
            ended = time.time()
            gswarm("profiler", "stop", "--name", name)
            smi.over.set(); smi.join()
            torch.cuda.empty_cache()
            rows = [row for at, row in smi.rows if begun + WARM <= at <= ended - 0.3]
            said = [mean([row[k] for row in rows]) for k in range(5)]
            frames, session = frames_of(name)
            total = 1
            get = lambda key: mean([frame[key][0] for frame in frames])
            extra = lambda key: mean([frame["extra_metrics"][key][0] for frame in frames])
            node = json.loads(gswarm("node", "status", "gpu-node", "--json").stdout)
            gpu = next(d for d in node["devices"] if d["scope"] == "gpu")
            total = gpu["values"]["memory_total_bytes"] or 1
            memory = get("gpu_memory")
            print(f"| {title} | {rate} | {cell(said[0])} / {cell(get('gpu_util'))} "
                  f"| {cell(said[2])} / {cell(extra('power_milliwatts'), 1e3)} "
                  f"| {cell(said[1], 1, 0)} / {cell(None if memory is None else memory / 100 * total, 2**20, 0)} "
                  f"| {cell(said[3], 1, 0)} / {cell(extra('temperature_celsius'), 1, 0)} "
                  f"| {cell(extra('sm_activity'))} | {cell(extra('tensor_activity'))} | {cell(extra('fp32_activity'))} "
                  f"| {cell(extra('device_memory_bandwidth_bytes_per_second'), 1e9, 0)} ({cell(extra('device_memory_activity'))}) "
                  f"| {cell(get('dram_bandwidth_rx'))} / {cell(get('dram_bandwidth_tx'))} "
                  f"| {cell(said[4], 1, 0)} / {cell(extra('clock_sm_mhz'), 1, 0)} |", flush=True)
        node = json.loads(gswarm("node", "status", "gpu-node", "--json").stdout)
        own = {k: v for d in node["devices"] for k, v in d["values"].items() if k.startswith("agent_")}
        print("\nagent at 10 Hz on this GPU:", json.dumps(own))
        print("processes:", json.dumps(node["processes"]), "links:", json.dumps(node["peer_links"]))
        print("gaps:", json.dumps(node["gaps"]), "events:", gswarm("events", check=False).stdout[-1500:])
        usage = open(f"/proc/{agent.pid}/stat").read().rsplit(")", 1)[1].split()
        ticks = int(usage[11]) + int(usage[12])
        status = open(f"/proc/{agent.pid}/status").read()
        rss = [line for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM", "Threads"))]
        print(f"agent cpu {ticks / os.sysconf('SC_CLK_TCK'):.2f} s over the whole run;", "; ".join(rss))
        gswarm("profiler", "stop", "--name", "warmup")
        gswarm("profiler", "start", "--name", "rate", "--freq", "200")
        time.sleep(10)
        gswarm("profiler", "stop", "--name", "rate")
        gswarm("profiler", "export", "--name", "rate", "-o", "rate.jsonl", "--format", "jsonl")
        lines = [json.loads(line) for line in open("rate.jsonl")]
        times = [l["record"]["t"] for l in lines if "record" in l and "values" in l["record"]["b"]]
        print(f"--freq 200: {len(times)} value records in {(times[-1] - times[0]) / 1e6:.2f} s")
        print(open("agent.log").read()[-1500:])
    finally:
        for process in (agent, host):
            process.terminate()
            process.wait(20)


if __name__ == "__main__":
    main()
