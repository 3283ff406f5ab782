/* A stand-in for CUDA on a computer without a GPU: device memory is the computer's, copies are made, and kernels do
   nothing. A listener hears of launches, waits and copies. null_cuda.py compiles this file, with a stub that returns 0
   for every other function that torch takes from CUDA's libraries. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind { LAUNCH, WAIT, UP, DOWN }; /* UP and DOWN are copies to the device and from it */
typedef void (*listener)(enum kind kind, const char *what, size_t bytes);

static listener listening;
static int capability = 86, too_old_driver, no_engine;
static size_t total = 6ull << 30, used;
static unsigned handles = 1;
static cudaError_t last; /* of a launch that failed, until it is asked for */

void null_listen(listener one) { listening = one; }

void null_settings(int its_capability, size_t its_memory, int driver_is_too_old, int cudnn_has_no_engine) {
    capability = its_capability;
    total = its_memory;
    too_old_driver = driver_is_too_old;
    no_engine = cudnn_has_no_engine;
}

static int tell(enum kind kind, const char *what, size_t bytes) {
    if (listening) listening(kind, what, bytes);
    return 0;
}

int null_launch(const char *what) { return tell(LAUNCH, what, 0); }

static int kernel(void) { /* torch has no kernels for older GPUs */
    if (capability < 75) return last = cudaErrorNoKernelImageForDevice;
    return null_launch("kernel");
}

/* The device */

cudaError_t cudaGetDeviceCount(int *n) {
    *n = !too_old_driver;
    return too_old_driver ? cudaErrorInsufficientDriver : cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = too_old_driver ? 11040 : 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation         ? "out of memory"
           : error == cudaErrorNoKernelImageForDevice ? "no kernel image is available for execution on the device"
                                                      : "an error of the stand-in for CUDA";
}
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
const char *cudaGetErrorName(cudaError_t error) { return "cudaErrorOfTheStandIn"; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *of, int device) { /* those of a GPU for laptops */
    memset(of, 0, sizeof *of);
    strcpy(of->name, "Null GPU");
    of->major = capability / 10;
    of->minor = capability % 10;
    of->totalGlobalMem = total;
    of->warpSize = 32;
    of->multiProcessorCount = 30;
    of->maxBlocksPerMultiProcessor = 16;
    of->maxThreadsPerMultiProcessor = 1536;
    of->maxThreadsPerBlock = of->maxThreadsDim[0] = of->maxThreadsDim[1] = 1024;
    of->maxThreadsDim[2] = 64;
    of->maxGridSize[0] = 2147483647;
    of->maxGridSize[1] = of->maxGridSize[2] = 65535;
    of->sharedMemPerBlock = 49152;
    of->sharedMemPerBlockOptin = 101376;
    of->sharedMemPerMultiprocessor = 102400;
    of->regsPerBlock = of->regsPerMultiprocessor = 65536;
    of->l2CacheSize = 3 << 20;
    of->textureAlignment = 512;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    struct cudaDeviceProp of;
    cudaGetDeviceProperties(&of, device);
    *value = which == cudaDevAttrWarpSize                          ? of.warpSize
             : which == cudaDevAttrMultiProcessorCount             ? of.multiProcessorCount
             : which == cudaDevAttrComputeCapabilityMajor          ? of.major
             : which == cudaDevAttrComputeCapabilityMinor          ? of.minor
             : which == cudaDevAttrMaxSharedMemoryPerBlockOptin    ? (int)of.sharedMemPerBlockOptin
                                                                   : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
int cuCtxGetCurrent(void **context) { *context = &handles; return 0; }

/* Memory: as much as the device is said to have */

cudaError_t cudaMalloc(void **at, size_t bytes) {
    *at = NULL;
    if (used + bytes > total || posix_memalign(at, 4096, bytes ? bytes : 1)) return cudaErrorMemoryAllocation;
    used += malloc_usable_size(*at);
    memset(*at, 0xff, bytes); /* what nothing has written is not a number */
    return cudaSuccess;
}
cudaError_t cudaFree(void *at) {
    used -= malloc_usable_size(at);
    free(at);
    return tell(WAIT, "cudaFree", 0);
}
cudaError_t cudaMemGetInfo(size_t *is_free, size_t *of) { *is_free = total - used; *of = total; return cudaSuccess; }

/* Pinned memory of the host is kept for ever, as torch itself does. */
static struct { const char *at; size_t bytes; } pinned[4096];
static int pins;

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    if (pins == sizeof pinned / sizeof *pinned || posix_memalign(at, 4096, bytes)) return cudaErrorMemoryAllocation;
    pinned[pins].at = *at;
    pinned[pins++].bytes = bytes;
    return cudaSuccess;
}
static int is_pinned(const void *at) {
    for (int i = 0; i < pins; i++)
        if ((const char *)at >= pinned[i].at && (const char *)at < pinned[i].at + pinned[i].bytes) return 1;
    return 0;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *of, const void *at) {
    memset(of, 0, sizeof *of);
    of->type = is_pinned(at) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    int up = kind == cudaMemcpyHostToDevice, down = kind == cudaMemcpyDeviceToHost;
    tell(up ? UP : down ? DOWN : LAUNCH, up ? "copy up" : down ? "copy down" : "copy on the device", bytes);
    if ((up && !is_pinned(from)) || (down && !is_pinned(to))) tell(WAIT, "copy of memory that is not pinned", bytes);
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return tell(WAIT, "cudaMemcpy", bytes);
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    memset(at, value, bytes);
    return null_launch("memset");
}

/* Streams and events */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *one, unsigned flags, int priority) {
    *one = (cudaStream_t)(uintptr_t)(256 * ++handles);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *one, unsigned flags) {
    *one = (cudaEvent_t)(uintptr_t)++handles;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t one) { return tell(WAIT, "cudaStreamSynchronize", 0); }
cudaError_t cudaEventSynchronize(cudaEvent_t one) { return tell(WAIT, "cudaEventSynchronize", 0); }
cudaError_t cudaDeviceSynchronize(void) { return tell(WAIT, "cudaDeviceSynchronize", 0); }
cudaError_t cudaStreamIsCapturing(cudaStream_t one, enum cudaStreamCaptureStatus *is) {
    *is = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Kernels. A launch <<<...>>> is compiled into calls that keep its sizes and fetch them again. */

static __thread dim3 grid, block;
static __thread size_t shared;
static __thread void *stream;

unsigned __cudaPushCallConfiguration(dim3 its_grid, dim3 its_block, size_t its_shared, void *its_stream) {
    grid = its_grid, block = its_block, shared = its_shared, stream = its_stream;
    return 0;
}
unsigned __cudaPopCallConfiguration(dim3 *its_grid, dim3 *its_block, size_t *its_shared, void *its_stream) {
    *its_grid = grid, *its_block = block, *its_shared = shared, *(void **)its_stream = stream;
    return 0;
}
void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
int __cudaGetKernel(void **kernel, const void *at) { *kernel = (void *)at; return 0; }
int __cudaLaunchKernel(void *which, dim3 its_grid, dim3 its_block, void **args, size_t its_shared, void *its_stream) {
    return kernel();
}
cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, size_t its_shared, cudaStream_t s) {
    return kernel();
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args) {
    return kernel();
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *of, const void *f) {
    memset(of, 0, sizeof *of);
    of->maxThreadsPerBlock = 1024;
    of->numRegs = 32;
    of->binaryVersion = of->ptxVersion = capability;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned g) {
    *n = 4;
    return cudaSuccess;
}
static int nothing(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **f, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *found) {
    *f = dlsym(RTLD_DEFAULT, name);
    if (!*f) *f = nothing;
    if (found) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* cuBLAS and cuDNN: they have handles, need no memory, and know an engine for everything */

int cublasCreate_v2(void **handle) { *handle = &handles; return 0; }
int cublasLtCreate(void **handle) { *handle = &handles; return 0; }
int cublasGetMathMode(void *handle, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { *mode = 0; return 0; }
int cublasLtMatmulAlgoGetHeuristic(
    void *handle, void *operation, void *a, void *b, void *c, void *d, void *wish, int n, void *found, int *count) {
    *count = 1;
    return 0;
}
int cudnnCreate(void **handle) { *handle = &handles; return 0; }
size_t cudnnGetVersion(void) { return 92400; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(int error) { return "an error of the stand-in for cuDNN"; }
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    void *h, int m, int o, void *x, void *z, void *y, void *b, void *a, size_t *bytes) { *bytes = 0; return 0; }
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    void *h, int m, int o, void *x, void *y, void *dy, void *dz, void *dx, void *b, void *a, size_t *bytes) {
    *bytes = 0;
    return 0;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *h, int m, int o, void *a, void *x, size_t *bytes) {
    *bytes = 0;
    return 0;
}
int cudnnBackendCreateDescriptor(int type, void **descriptor) { *descriptor = calloc(1, 16); return 0; }
int cudnnBackendDestroyDescriptor(void *descriptor) { free(descriptor); return 0; }
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t asked, int64_t *count, void *to) {
    enum { INT64 = 3, ENGINES = 202, ATTRIBUTES_OF_AN_ENGINE = 802 };
    if (count) *count = type == INT64 || (name == ENGINES && !no_engine) || name == ATTRIBUTES_OF_AN_ENGINE;
    if (type == INT64 && to && asked > 0) *(int64_t *)to = 0;
    return 0;
}

/* NCCL with one process: every collective is a copy */

typedef struct { char bytes[128]; } unique;
int ncclGetVersion(int *version) { *version = 22800; return 0; }
int ncclGetUniqueId(unique *id) { memset(id, 7, sizeof *id); return 0; }
int ncclCommInitRank(void **comm, int n, unique id, int rank) { *comm = &handles; return 0; }
int ncclCommInitRankConfig(void **comm, int n, unique id, int rank, void *config) { *comm = &handles; return 0; }
int ncclCommInitRankScalable(void **comm, int n, int rank, int k, unique *id, void *config) {
    *comm = &handles;
    return 0;
}
int ncclCommGetAsyncError(void *comm, int *error) { *error = 0; return 0; }
int ncclCommCount(void *comm, int *n) { *n = 1; return 0; }
const char *ncclGetErrorString(int error) { return "an error of the stand-in for NCCL"; }
const char *ncclGetLastError(void *comm) { return ""; }
static int collective(const char *what, const void *from, void *to, size_t n, int type) {
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    if (from != to) memcpy(to, from, n * bytes[type]);
    return null_launch(what);
}
int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *s) {
    return collective("ncclAllGather", from, to, n, type);
}
int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, void *comm, void *s) {
    return collective("ncclAllReduce", from, to, n, type);
}
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, void *comm, void *s) {
    return collective("ncclBroadcast", from, to, n, type);
}
int ncclBcast(void *at, size_t n, int type, int root, void *comm, void *s) {
    return collective("ncclBcast", at, at, n, type);
}
