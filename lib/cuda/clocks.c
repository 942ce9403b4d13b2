/* SPDX-License-Identifier: MIT
 *
 * Clocks through NVML, which comes with the driver. Its own types and values are spelt out here (NVML API reference,
 * "Device Queries" and "NvmlClocksEventReasons"), because its header is in no wheel.
 */
#include "cuda/clocks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "cuda/internal.h"

enum { NVML_OK = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };

typedef void *nvml_device;

typedef struct nvml {
    int (*Init_v2)(void);
    int (*Shutdown)(void);
    int (*DeviceGetHandleByPciBusId_v2)(const char *, nvml_device *);
    int (*DeviceGetClockInfo)(nvml_device, int, unsigned *);
    int (*DeviceGetCurrentClocksThrottleReasons)(nvml_device, unsigned long long *);
} nvml;

typedef struct clocks {
    pthread_mutex_t lock; /* own: opening takes long and must not hold the context's */
    bool tried, works;
    nvml nvml;
    nvml_device device;
} clocks;

static const char *const nvml_names[] = {"libnvidia-ml.so.1", NULL};
static const stitch__library nvml_library = {"NVML", "STITCH_NVML", nvml_names,
                                             NULL,   false,         "it comes with the NVIDIA driver"};

static int make(stitch_context *ctx, void **state, stitch_error **err)
{
    clocks *c = stitch__calloc(ctx, 1, sizeof(*c));
    if (!c || pthread_mutex_init(&c->lock, NULL) != 0) {
        stitch_free(c);
        return stitch__err_nomem(ctx, err);
    }
    *state = c;
    return STITCH_OK;
}

static void destroy(void *state)
{
    clocks *c = state;
    if (c->works)
        c->nvml.Shutdown();
    pthread_mutex_destroy(&c->lock);
    stitch_free(c);
}

static bool find(void *handle, const char *name, void *function)
{
    void *at = dlsym(handle, name);
    memcpy(function, &at, sizeof(at));
    return at != NULL;
}

static bool open_library(stitch__device *dev, nvml *n)
{
    char *path = NULL;
    void *handle = NULL;
    stitch__buf tried;

    stitch__buf_init(&tried, dev->ctx);
    int rc = stitch__library_open(dev->ctx, &nvml_library, &handle, &path, &tried, NULL);
    stitch__buf_free(&tried);
    stitch_free(path);
    return rc == STITCH_OK && find(handle, "nvmlInit_v2", &n->Init_v2) && find(handle, "nvmlShutdown", &n->Shutdown) &&
           find(handle, "nvmlDeviceGetHandleByPciBusId_v2", &n->DeviceGetHandleByPciBusId_v2) &&
           find(handle, "nvmlDeviceGetClockInfo", &n->DeviceGetClockInfo) &&
           find(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", &n->DeviceGetCurrentClocksThrottleReasons);
}

static bool open_clocks(clocks *c, stitch__device *dev)
{
    char bus[64] = "";
    if (!dev->drv->DeviceGetPCIBusId || dev->drv->DeviceGetPCIBusId(bus, sizeof(bus), dev->ordinal) != CUDA_SUCCESS ||
        !open_library(dev, &c->nvml) || c->nvml.Init_v2() != NVML_OK)
        return false;
    if (c->nvml.DeviceGetHandleByPciBusId_v2(bus, &c->device) == NVML_OK)
        return true;
    c->nvml.Shutdown();
    return false;
}

bool stitch__clocks_read(stitch__device *dev, stitch__clock_sample *out)
{
    void *state = NULL;
    unsigned sm = 0, memory = 0;
    unsigned long long reasons = 0;

    memset(out, 0, sizeof(*out));
    if (dev->info.simulated ||
        stitch__context_slot(dev->ctx, STITCH__SLOT_CLOCKS, make, destroy, &state, NULL) != STITCH_OK)
        return false;
    clocks *c = state;
    pthread_mutex_lock(&c->lock);
    if (!c->tried)
        c->works = open_clocks(c, dev);
    c->tried = true;
    bool read = c->works && c->nvml.DeviceGetClockInfo(c->device, NVML_CLOCK_SM, &sm) == NVML_OK &&
                c->nvml.DeviceGetClockInfo(c->device, NVML_CLOCK_MEM, &memory) == NVML_OK &&
                c->nvml.DeviceGetCurrentClocksThrottleReasons(c->device, &reasons) == NVML_OK;
    pthread_mutex_unlock(&c->lock);
    if (read)
        *out = (stitch__clock_sample){sm, memory, reasons};
    return read;
}

void stitch__clocks_describe(uint64_t reasons, char *out, size_t size)
{
    static const struct {
        uint64_t bit;
        const char *text;
    } words[] = {{0x04, "power cap"},
                 {0x08, "hardware slowdown"},
                 {0x20, "thermal (software)"},
                 {0x40, "thermal (hardware)"},
                 {0x80, "power brake"}};
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < STITCH__COUNT(words) && used < size; i++)
        if (reasons & words[i].bit)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", words[i].text);
}
