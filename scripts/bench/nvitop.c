/* What nvitop-exporter calls and the fake NVML of the tests does not have, so that the peer works
 * at full speed: without these it would spend its time on exceptions, or not start at all. */

enum { SUCCESS = 0, NOT_SUPPORTED = 3 };

int nvmlInit_v2(void);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
int nvmlSystemGetCudaDriverVersion_v2(int *version);

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts) {
    return nvmlDeviceGetEnforcedPowerLimit(device, milliwatts);
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    (void)device, (void)current, (void)pending;
    return NOT_SUPPORTED;
}

int nvmlDeviceIsMigDeviceHandle(void *device, unsigned *is_mig) {
    (void)device;
    *is_mig = 0;
    return SUCCESS;
}
