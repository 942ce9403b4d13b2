// SPDX-License-Identifier: MIT
//
// An inference engine in small: it has its own driver context, stream, memory and kernels, loads a program that `stitch run` saved, and runs it
// between its own kernels on its own stream.
//
// usage: engine PROGRAM.stitch [RUNS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>
#include <stitch/stitch.h>

namespace {

// An engine normally links the driver; opening it keeps this example buildable where there is none. STITCH_CUDA_DRIVER names another
// one (the simulator, say), for us and for libstitch alike.
struct Driver {
    void *library;
    template <typename F> void get(F &f, const char *name)
    {
        f = reinterpret_cast<F>(dlsym(library, name));
        if (!f)
            throw std::runtime_error(std::string("the driver has no ") + name);
    }
    decltype(&cuInit) Init;
    decltype(&cuDevicePrimaryCtxRetain) PrimaryCtxRetain;
    decltype(&cuCtxSetCurrent) CtxSetCurrent;
    decltype(&cuStreamCreate) StreamCreate;
    decltype(&cuStreamSynchronize) StreamSynchronize;
    decltype(&cuMemAlloc) MemAlloc;
    decltype(&cuMemcpyDtoH) MemcpyDtoH;
    decltype(&cuModuleLoadData) ModuleLoadData;
    decltype(&cuModuleGetFunction) ModuleGetFunction;
    decltype(&cuLaunchKernel) LaunchKernel;
    decltype(&cuEventCreate) EventCreate;
    decltype(&cuEventRecord) EventRecord;
    decltype(&cuEventElapsedTime) EventElapsedTime;

    Driver()
    {
        const char *path = std::getenv("STITCH_CUDA_DRIVER");
        library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
        if (!library)
            throw std::runtime_error(dlerror());
        get(Init, "cuInit");
        get(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
        get(CtxSetCurrent, "cuCtxSetCurrent");
        get(StreamCreate, "cuStreamCreate");
        get(StreamSynchronize, "cuStreamSynchronize");
        get(MemAlloc, "cuMemAlloc_v2");
        get(MemcpyDtoH, "cuMemcpyDtoH_v2");
        get(ModuleLoadData, "cuModuleLoadData");
        get(ModuleGetFunction, "cuModuleGetFunction");
        get(LaunchKernel, "cuLaunchKernel");
        get(EventCreate, "cuEventCreate");
        get(EventRecord, "cuEventRecord");
        get(EventElapsedTime, "cuEventElapsedTime");
    }
};

void cu(CUresult rc, const char *what)
{
    if (rc != CUDA_SUCCESS)
        throw std::runtime_error(std::string(what) + " failed with " + std::to_string(rc));
}

// Calls of libstitch: the error becomes an exception.
class Failure {
public:
    ~Failure() { stitch_error_free(error_); }
    stitch_error **out() { return &error_; }
    void check(int rc) const
    {
        if (rc != STITCH_OK)
            throw std::runtime_error(std::string(stitch_status_name(rc)) + ": " + stitch_error_message(error_));
    }

private:
    stitch_error *error_ = nullptr;
};

const char own_kernels[] = R"(
extern "C" __global__ void fill(float *p, long long n, unsigned seed, float scale)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) {
        unsigned x = (unsigned)i * 747796405u + seed * 2891336453u + 1u;
        x = (x >> ((x >> 28) + 4u) ^ x) * 277803737u;
        p[i] = ((x >> 22 ^ x) * 2.3283064e-10f - 0.5f) * scale;
    }
}
extern "C" __global__ void absolute_sum(const float *p, long long n, double *sum)
{
    __shared__ double partial[256];
    double s = 0;
    for (long long i = threadIdx.x; i < n; i += 256)
        s += p[i] < 0 ? -p[i] : p[i];
    partial[threadIdx.x] = s;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if ((int)threadIdx.x < step)
            partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *sum = partial[0];
}
)";

int run(const char *path, int runs)
{
    // The engine's own world.
    Driver driver;
    CUcontext context;
    CUstream stream;
    cu(driver.Init(0), "cuInit");
    cu(driver.PrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    cu(driver.CtxSetCurrent(context), "cuCtxSetCurrent");
    cu(driver.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

    // The ten lines that bring the program in.
    Failure f;
    stitch_context *ctx = nullptr;
    stitch_program *program = nullptr;
    stitch_executor *executor = nullptr;
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    options.device = "cuda:0";
    f.check(stitch_context_new(&ctx, &options, f.out()));
    f.check(stitch_program_load(ctx, path, nullptr, &program, f.out()));
    f.check(stitch_executor_new(ctx, program, nullptr, &executor, f.out()));
    stitch_program_free(program);

    // Its own kernels, from the same compiler.
    stitch_image *image = nullptr;
    CUmodule module;
    CUfunction fill, absolute_sum;
    f.check(stitch_compile(ctx, own_kernels, nullptr, &image, f.out()));
    cu(driver.ModuleLoadData(&module, stitch_image_data(image, nullptr)), "cuModuleLoadData");
    cu(driver.ModuleGetFunction(&fill, module, "fill"), "cuModuleGetFunction");
    cu(driver.ModuleGetFunction(&absolute_sum, module, "absolute_sum"), "cuModuleGetFunction");
    stitch_image_free(image);

    auto launch_fill = [&](CUdeviceptr p, long long n, unsigned seed, float scale) {
        void *args[] = {&p, &n, &seed, &scale};
        unsigned blocks = (unsigned)std::min<long long>((n + 255) / 256, 1024);
        cu(driver.LaunchKernel(fill, blocks, 1, 1, 256, 1, 1, 0, stream, args, nullptr), "fill");
    };

    const stitch_interface *interface = stitch_executor_interface(executor);
    CUdeviceptr input = 0, output = 0, sum = 0;
    long long input_count = 0, output_count = 0;
    for (size_t i = 0; i < stitch_interface_tensor_count(interface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        CUdeviceptr p;
        stitch_interface_tensor(interface, i, &info);
        if (info.dtype != STITCH_DTYPE_F32)
            throw std::runtime_error("this example feeds float32 tensors only");
        cu(driver.MemAlloc(&p, info.bytes), "cuMemAlloc");
        f.check(stitch_executor_bind(executor, i, p, info.bytes, f.out()));
        launch_fill(p, (long long)info.elements, (unsigned)i, info.role == STITCH_TENSOR_WEIGHT ? 0.05f : 2.0f);
        if (info.role == STITCH_TENSOR_INPUT)
            input = p, input_count = (long long)info.elements;
        if (info.role == STITCH_TENSOR_OUTPUT)
            output = p, output_count = (long long)info.elements;
    }
    f.check(stitch_executor_prepare(executor, stream, f.out()));
    cu(driver.MemAlloc(&sum, sizeof(double)), "cuMemAlloc");

    std::vector<float> times;
    CUevent begin, end;
    cu(driver.EventCreate(&begin, 0), "cuEventCreate");
    cu(driver.EventCreate(&end, 0), "cuEventCreate");
    for (int i = 0; i < runs; i++) {
        float ms = 0;
        launch_fill(input, input_count, 1000u + (unsigned)i, 2.0f); // the engine's kernel before ...
        cu(driver.EventRecord(begin, stream), "cuEventRecord");
        f.check(stitch_executor_run(executor, stream, f.out())); // ... the program ...
        cu(driver.EventRecord(end, stream), "cuEventRecord");
        void *args[] = {&output, &output_count, &sum}; // ... and after it, all on one stream
        cu(driver.LaunchKernel(absolute_sum, 1, 1, 1, 256, 1, 1, 0, stream, args, nullptr), "absolute_sum");
        cu(driver.StreamSynchronize(stream), "cuStreamSynchronize");
        cu(driver.EventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
        times.push_back(ms * 1000);
    }
    double total = 0;
    cu(driver.MemcpyDtoH(&total, sum, sizeof(total)), "cuMemcpyDtoH");
    std::sort(times.begin(), times.end());
    std::printf("%s: %d runs, median %.1f us (%.1f to %.1f), mean |output| of the last %.6f\n", path, runs, times[times.size() / 2], times.front(),
                times.back(), total / (double)output_count);
    stitch_executor_free(executor);
    stitch_context_free(ctx);
    return total > 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: engine PROGRAM.stitch [RUNS]\n");
        return 2;
    }
    try {
        return run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 20);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "engine: %s\n", e.what());
        return 1;
    }
}
