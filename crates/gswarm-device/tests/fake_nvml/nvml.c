/* A stand-in for libnvidia-ml.so.1: GPUs whose values, faults and hangs a text file controls.
 *
 *     cc -shared -fPIC -O1 -o libnvidia-ml.so.1 nvml.c
 *
 * The control file is $FAKE_NVML_CONTROL, or `control` beside the library. It is read again in
 * every call, so a change takes effect at once; without one at load time none is looked for, and
 * a call costs next to nothing. Lines (GPU is an index or `*`):
 *
 *     set NAME GPU VALUE         a value, see the functions; also gpus, gpm, nvlink, links, clock_ms,
 *                                and delay_us, which every call for the GPU then takes longer
 *     error FUNCTION GPU CODE    the function returns this code
 *     hang FUNCTION GPU          the function does not return while this line is there
 *     lost GPU                   every call for this GPU returns GPU_IS_LOST
 *     init CODE                  nvmlInit_v2 returns this code
 *     xid GPU XID SERIAL         reported once for each new serial number
 *     process GPU compute|graphics PID BYTES
 *     log PATH                   appends `THREAD FUNCTION GPU` for every call
 *
 * $FAKE_NVML_GPUS, $FAKE_NVML_GPM and $FAKE_NVML_NVLINK (0 none, 1 pairs, 2 switch) are the
 * defaults of gpus, gpm and nvlink. -DSLOW_CALLS gives slow functions the delays measured on real
 * hardware. -DnvmlX=absent leaves out the function nvmlX.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
};

enum { GPUS_MAX = 64, LINKS_MAX = 18, CONTROL_BYTES_MAX = 16384, GPM_STEP_MS = 100 };

typedef struct Device { int index; } Device;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} PciInfo;
typedef struct { unsigned long long reference, violation; } Violation;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, code;
    union { double real; unsigned number; unsigned long long big; } value;
} Field;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;
typedef struct { int gpu; long long step; } GpmSample;
typedef struct { unsigned id, code; double value; char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *one, *two; GpmMetric metrics[210]; } GpmGet;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { Device *device; unsigned long long type, data; unsigned gi, ci; } EventData;
typedef struct { unsigned char registered[GPUS_MAX]; long long serial; } EventSet;

static Device devices[GPUS_MAX];
static char control_path[4096];
static int has_control;

/* ---- control ---- */

__attribute__((constructor)) static void load(void) {
    const char *from_env = getenv("FAKE_NVML_CONTROL");
    Dl_info self;
    for (int i = 0; i < GPUS_MAX; i++) devices[i].index = i;
    if (from_env) {
        snprintf(control_path, sizeof control_path, "%s", from_env);
    } else if (dladdr(devices, &self) && self.dli_fname) {
        snprintf(control_path, sizeof control_path, "%s", self.dli_fname);
        char *slash = strrchr(control_path, '/');
        if (slash) snprintf(slash + 1, sizeof control_path - (slash + 1 - control_path), "control");
    }
    has_control = control_path[0] && access(control_path, R_OK) == 0;
}

static const char *read_control(void) {
    static __thread char text[CONTROL_BYTES_MAX];
    text[0] = 0;
    if (!has_control) return text;
    int file = open(control_path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return text;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    return text;
}

static int is_gpu(const char *word, int gpu) {
    return !strcmp(word, "*") || atoi(word) == gpu;
}

/* Finds `KEY NAME GPU VALUE`; the last such line wins. */
static int find(const char *text, const char *key, const char *name, int gpu, double *value) {
    int found = 0;
    char k[16], n[80], g[16];
    double v;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        v = 0;
        if (sscanf(line, "%15s %79s %15s %lf", k, n, g, &v) >= 3 && !strcmp(k, key) &&
            !strcmp(n, name) && is_gpu(g, gpu)) {
            *value = v;
            found = 1;
        }
    }
    return found;
}

static double value_or(const char *name, int gpu, double otherwise) {
    double value = otherwise;
    if (has_control) find(read_control(), "set", name, gpu, &value);
    return value;
}

static double env_or(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

static int gpu_count(void) { return (int)value_or("gpus", -1, env_or("FAKE_NVML_GPUS", 8)); }
static int gpm_on(int gpu) { return (int)value_or("gpm", gpu, env_or("FAKE_NVML_GPM", 1)); }
static int nvlink_mode(int gpu) { return (int)value_or("nvlink", gpu, env_or("FAKE_NVML_NVLINK", 2)); }

static long long clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)value_or("clock_ms", -1, now.tv_sec * 1e3 + now.tv_nsec / 1e6);
}

static void pause_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void slow_us(long us) {
#ifdef SLOW_CALLS
    pause_us(us);
#else
    (void)us;
#endif
}

static void log_call(const char *text, const char *function, int gpu) {
    char path[1024], line[160], name[17] = "";
    const char *at = !strncmp(text, "log ", 4) ? text : strstr(text, "\nlog ");
    if (!at || sscanf(at, " log %1023s", path) != 1) return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    prctl(PR_GET_NAME, name);
    int length = snprintf(line, sizeof line, "%s %s %d\n", name, function, gpu);
    if (write(file, line, length) < 0) { /* a test will miss the line */ }
    close(file);
}

static int is_lost(const char *text, int gpu) {
    char g[16];
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (sscanf(line, "lost %15s", g) == 1 && is_gpu(g, gpu)) return 1;
    }
    return 0;
}

/* What every call for a GPU does first. */
static unsigned enter(const char *function, int gpu) {
    double code;
    if (!has_control) return SUCCESS;
    log_call(read_control(), function, gpu);
    pause_us((long)value_or("delay_us", gpu, 0));
    while (find(read_control(), "hang", function, gpu, &code)) pause_us(1000);
    const char *text = read_control();
    if (is_lost(text, gpu)) return GPU_IS_LOST;
    if (find(text, "error", function, gpu, &code)) return (unsigned)code;
    return SUCCESS;
}

#define ENTER(device)                                           \
    do {                                                        \
        unsigned code_ = enter(__func__, (device)->index);      \
        if (code_ != SUCCESS) return code_;                     \
    } while (0)

/* 0 to 1, a triangle of eight seconds, shifted for each GPU. */
static double wave(int gpu) {
    double phase = fmod(clock_ms() / 8000.0 + gpu / 8.0, 1.0);
    return phase < 0.5 ? 2 * phase : 2 - 2 * phase;
}

/* ---- system ---- */

unsigned nvmlInit_v2(void) {
    int code;
    const char *text = read_control();
    const char *at = !strncmp(text, "init ", 5) ? text : strstr(text, "\ninit ");
    return at && sscanf(at, " init %d", &code) == 1 ? (unsigned)code : SUCCESS;
}

unsigned nvmlShutdown(void) {
    log_call(read_control(), __func__, -1);
    return SUCCESS;
}

unsigned nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.00.fake");
    return SUCCESS;
}

unsigned nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    snprintf(text, length, "13.580.00");
    return SUCCESS;
}

unsigned nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13020;
    return SUCCESS;
}

unsigned nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)gpu_count();
    return SUCCESS;
}

unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= gpu_count() || index >= GPUS_MAX) return INVALID_ARGUMENT;
    ENTER(&devices[index]);
    *device = &devices[index];
    return SUCCESS;
}

/* ---- identity ---- */

unsigned nvmlDeviceGetUUID(Device *d, char *text, unsigned length) {
    ENTER(d);
    snprintf(text, length, "GPU-00000000-0000-0000-0000-%012d", d->index);
    return SUCCESS;
}

unsigned nvmlDeviceGetName(Device *d, char *text, unsigned length) {
    ENTER(d);
    snprintf(text, length, "NVIDIA Fake H200");
    return SUCCESS;
}

static void fill_pci(PciInfo *info, int bus) {
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)bus;
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", bus & 255);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", bus & 255);
}

unsigned nvmlDeviceGetPciInfo_v3(Device *d, PciInfo *info) {
    ENTER(d);
    fill_pci(info, 0x10 + d->index);
    return SUCCESS;
}

/* ---- cheap values ---- */

unsigned nvmlDeviceGetUtilizationRates(Device *d, Utilization *rates) {
    ENTER(d);
    rates->gpu = (unsigned)value_or("utilization", d->index, 100 * wave(d->index));
    rates->memory = (unsigned)value_or("memory_utilization", d->index, 60 * wave(d->index));
    return SUCCESS;
}

static unsigned long long memory_total(void) { return 141ull << 30; }
static unsigned long long memory_reserved(void) { return 600ull << 20; }
static unsigned long long memory_used(int gpu) {
    return (unsigned long long)value_or("memory_used", gpu, (1 + gpu) * 1073741824.0);
}

unsigned nvmlDeviceGetMemoryInfo_v2(Device *d, MemoryV2 *memory) {
    ENTER(d);
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    memory->total = memory_total();
    memory->reserved = memory_reserved();
    memory->used = memory_used(d->index);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

unsigned nvmlDeviceGetMemoryInfo(Device *d, Memory *memory) {
    ENTER(d);
    memory->total = memory_total();
    memory->used = memory_used(d->index) + memory_reserved();
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#define NUMBER(function, type, name, otherwise)                 \
    unsigned function(Device *d, type *value) {                 \
        ENTER(d);                                               \
        *value = (type)value_or(name, d->index, otherwise);     \
        return SUCCESS;                                         \
    }

NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power", 100000 + 500000 * wave(d->index))
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit", 700000)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, "bus_width", 6016)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "event_reasons", 4)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_generation", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width", 16)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, "fan", 33)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, "performance_state", 0)

unsigned nvmlDeviceGetTemperature(Device *d, unsigned sensor, unsigned *value) {
    ENTER(d);
    if (sensor != 0) return INVALID_ARGUMENT;
    *value = (unsigned)value_or("temperature", d->index, 35 + 40 * wave(d->index));
    return SUCCESS;
}

unsigned nvmlDeviceGetClockInfo(Device *d, unsigned type, unsigned *value) {
    ENTER(d);
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    *value = (unsigned)(type == 1 ? value_or("clock_sm", d->index, 1980) : 3201);
    return SUCCESS;
}

unsigned nvmlDeviceGetTotalEccErrors(Device *d, unsigned type, unsigned since, unsigned long long *value) {
    ENTER(d);
    if (since != 0) return INVALID_ARGUMENT;
    *value = (unsigned long long)value_or(type ? "ecc_uncorrected" : "ecc_corrected", d->index, 0);
    return SUCCESS;
}

unsigned nvmlDeviceGetEncoderUtilization(Device *d, unsigned *value, unsigned *period_us) {
    ENTER(d);
    *value = (unsigned)value_or("encoder", d->index, 11);
    *period_us = 167000;
    return SUCCESS;
}

unsigned nvmlDeviceGetDecoderUtilization(Device *d, unsigned *value, unsigned *period_us) {
    ENTER(d);
    *value = (unsigned)value_or("decoder", d->index, 22);
    *period_us = 167000;
    return SUCCESS;
}

/* ---- slow values ---- */

unsigned nvmlDeviceGetMaxClockInfo(Device *d, unsigned type, unsigned *value) {
    ENTER(d);
    slow_us(1000);
    *value = type == 2 ? 3201 : 1980;
    return SUCCESS;
}

unsigned nvmlDeviceGetTotalEnergyConsumption(Device *d, unsigned long long *value) {
    ENTER(d);
    slow_us(3000);
    *value = (unsigned long long)value_or("energy", d->index, clock_ms() * 0.4);
    return SUCCESS;
}

unsigned nvmlDeviceGetViolationStatus(Device *d, unsigned policy, Violation *time) {
    ENTER(d);
    if (policy > 1) return NOT_SUPPORTED;
    time->reference = (unsigned long long)clock_ms() * 1000;
    time->violation = (unsigned long long)value_or(policy ? "throttle_thermal" : "throttle_power", d->index, 0);
    return SUCCESS;
}

unsigned nvmlDeviceGetPcieReplayCounter(Device *d, unsigned *value) {
    ENTER(d);
    slow_us(100);
    *value = (unsigned)value_or("replays", d->index, 0);
    return SUCCESS;
}

/* In kilobytes per second; counter 0 is what the GPU sends. */
unsigned nvmlDeviceGetPcieThroughput(Device *d, unsigned counter, unsigned *value) {
    ENTER(d);
    slow_us(20000);
    if (counter > 1) return INVALID_ARGUMENT;
    *value = (unsigned)(counter ? value_or("pcie_rx", d->index, 2000) : value_or("pcie_tx", d->index, 1000));
    return SUCCESS;
}

unsigned nvmlDeviceGetRemappedRows(Device *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(d);
    *corrected = (unsigned)value_or("remapped_corrected", d->index, 0);
    *uncorrected = (unsigned)value_or("remapped_uncorrected", d->index, 0);
    *pending = (unsigned)value_or("remapped_pending", d->index, 0);
    *failed = (unsigned)value_or("remapped_failed", d->index, 0);
    return SUCCESS;
}

static unsigned processes(Device *d, const char *kind, unsigned *count, Process *list) {
    unsigned found = 0, room = *count;
    char g[16], k[16];
    unsigned pid;
    double bytes;
    for (const char *line = read_control(); line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (sscanf(line, "process %15s %15s %u %lf", g, k, &pid, &bytes) != 4) continue;
        if (!is_gpu(g, d->index) || strcmp(k, kind)) continue;
        if (found < room) {
            unsigned long long memory = bytes < 0 ? ~0ull : (unsigned long long)bytes;
            list[found] = (Process){pid, memory, ~0u, ~0u};
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

unsigned nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *list) {
    ENTER(d);
    return processes(d, "compute", count, list);
}

unsigned nvmlDeviceGetGraphicsRunningProcesses_v3(Device *d, unsigned *count, Process *list) {
    ENTER(d);
    return processes(d, "graphics", count, list);
}

/* ---- links ---- */

static int link_count(int gpu) {
    return nvlink_mode(gpu) ? (int)value_or("links", gpu, LINKS_MAX) : 0;
}

unsigned nvmlDeviceGetNvLinkState(Device *d, unsigned link, unsigned *active) {
    char name[32];
    ENTER(d);
    if (!nvlink_mode(d->index)) return NOT_SUPPORTED;
    if ((int)link >= link_count(d->index)) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "link%u", link);
    *active = (unsigned)value_or(name, d->index, 1);
    return SUCCESS;
}

unsigned nvmlDeviceGetNvLinkRemoteDeviceType(Device *d, unsigned link, unsigned *type) {
    ENTER(d);
    if ((int)link >= link_count(d->index)) return INVALID_ARGUMENT;
    *type = nvlink_mode(d->index) == 2 ? 2 : 0;
    return SUCCESS;
}

unsigned nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *d, unsigned link, PciInfo *info) {
    ENTER(d);
    if ((int)link >= link_count(d->index)) return INVALID_ARGUMENT;
    fill_pci(info, nvlink_mode(d->index) == 2 ? 0xC0 + (int)link % 4 : 0x10 + (d->index ^ 1));
    return SUCCESS;
}

unsigned nvmlDeviceGetTopologyCommonAncestor(Device *a, Device *b, unsigned *level) {
    ENTER(a);
    if (a->index == b->index) return INVALID_ARGUMENT;
    *level = a->index / 2 == b->index / 2 ? 30 : a->index / 4 == b->index / 4 ? 40 : 50;
    return SUCCESS;
}

unsigned nvmlDeviceGetP2PStatus(Device *a, Device *b, unsigned what, unsigned *status) {
    ENTER(a);
    (void)b;
    (void)what;
    *status = 0;
    return SUCCESS;
}

/* 82 memory temperature, 90 link speed in MB/s, 138 and 139 KiB sent and received by one link:
 * link L sends 2000 (L + 1) and receives 1000 (L + 1) KiB each second. */
unsigned nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    ENTER(d);
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        long long now = clock_ms();
        int is_link = (int)field->scope < link_count(d->index);
        field->timestamp = now * 1000;
        field->latency = 1;
        field->code = SUCCESS;
        field->type = 1;
        field->value.big = 0;
        if (field->field == 82) {
            field->value.number = (unsigned)value_or("memory_temperature", d->index, 45);
        } else if (field->field == 90 && link_count(d->index)) {
            field->value.number = 26562;
        } else if ((field->field == 138 || field->field == 139) && is_link) {
            unsigned long long rate = (field->field == 138 ? 2000 : 1000) * (field->scope + 1);
            field->type = 3;
            field->value.big = rate * (unsigned long long)now / 1000;
        } else {
            field->code = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}

/* ---- GPM: counters that move every 100 ms ---- */

unsigned nvmlGpmQueryDeviceSupport(Device *d, GpmSupport *support) {
    ENTER(d);
    if (support->version != 1) return VERSION_MISMATCH;
    support->supported = gpm_on(d->index) != 0;
    return SUCCESS;
}

unsigned nvmlGpmSampleAlloc(GpmSample **sample) {
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

unsigned nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    return SUCCESS;
}

/* The real library crashes here when two threads come at the same time; this one tells. */
static int threads_in_gpm;

unsigned nvmlGpmSampleGet(Device *d, GpmSample *sample) {
    if (__sync_fetch_and_add(&threads_in_gpm, 1)) log_call(read_control(), "overlap", d->index);
    unsigned code = enter(__func__, d->index);
    slow_us(1000);
    if (code == SUCCESS && !gpm_on(d->index)) code = NOT_SUPPORTED;
    if (code == SUCCESS) *sample = (GpmSample){d->index, clock_ms() / GPM_STEP_MS};
    __sync_fetch_and_sub(&threads_in_gpm, 1);
    return code;
}

/* Percent and MiB/s. FP64 (11) tells how many steps lie between the samples, so that a test sees
 * which ones were compared; link L gives 100 + L received and 200 + L sent. */
static double gpm_value(unsigned id, int gpu, long long steps) {
    char name[16];
    double otherwise = 0;
    int links = link_count(gpu);
    switch (id) {
    case 2: otherwise = 90 * wave(gpu); break;
    case 3: otherwise = 40; break;
    case 5: otherwise = 35; break;
    case 10: otherwise = 60; break;
    case 11: otherwise = (double)steps; break;
    case 12: otherwise = 12; break;
    case 13: otherwise = 13; break;
    case 20: otherwise = 1000; break;
    case 21: otherwise = 2000; break;
    case 60: otherwise = 100 * links; break;
    case 61: otherwise = 200 * links; break;
    default: otherwise = (id % 2 ? 200 : 100) + (double)((id - 62) / 2);
    }
    snprintf(name, sizeof name, "gpm%u", id);
    return value_or(name, gpu, otherwise);
}

unsigned nvmlGpmMetricsGet(GpmGet *get) {
    if (get->version != 1 || get->one->gpu != get->two->gpu) return INVALID_ARGUMENT;
    int gpu = get->two->gpu;
    ENTER(&devices[gpu]);
    long long steps = get->two->step - get->one->step;
    if (steps < 0) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < get->count; i++) {
        GpmMetric *metric = &get->metrics[i];
        int known = (metric->id >= 2 && metric->id <= 21) || (metric->id >= 60 && metric->id <= 97);
        metric->code = known ? SUCCESS : NOT_SUPPORTED;
        metric->value = steps ? gpm_value(metric->id, gpu, steps) : metric->id == 10 ? NAN : 0;
    }
    return SUCCESS;
}

/* ---- events ---- */

unsigned nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

unsigned nvmlEventSetFree(EventSet *set) {
    free(set);
    return SUCCESS;
}

unsigned nvmlDeviceRegisterEvents(Device *d, unsigned long long types, EventSet *set) {
    ENTER(d);
    (void)types;
    set->registered[d->index] = 1;
    return SUCCESS;
}

static int next_xid(EventSet *set, EventData *data) {
    int gpu;
    unsigned long long xid;
    long long serial;
    for (const char *line = read_control(); line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (sscanf(line, "xid %d %llu %lld", &gpu, &xid, &serial) != 3) continue;
        if (gpu < 0 || gpu >= GPUS_MAX || !set->registered[gpu] || serial <= set->serial) continue;
        set->serial = serial;
        *data = (EventData){&devices[gpu], 8, xid, ~0u, ~0u};
        return 1;
    }
    return 0;
}

unsigned nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
    if (!has_control) {
        pause_us(timeout_ms * 1000L);
        return TIMEOUT;
    }
    for (unsigned waited = 0; waited <= timeout_ms; waited += 5) {
        if (next_xid(set, data)) return SUCCESS;
        pause_us(5000);
    }
    return TIMEOUT;
}
