/* SPDX-License-Identifier: MIT
 *
 * Compares what lib/cuda/cupti.h declares with the real header, where there is one, while it is compiled.
 */
#ifndef STITCH_TESTS_CUPTI_LAYOUT_H
#define STITCH_TESTS_CUPTI_LAYOUT_H

#include "cuda/cupti.h"

#if __has_include(<cupti.h>)
#include <cupti.h>

#define SAME_FIELD(mine, their, my_field, field)                                                                       \
    _Static_assert(offsetof(mine, my_field) == offsetof(their, field) &&                                               \
                       sizeof(((mine *)0)->my_field) == sizeof(((their *)0)->field),                                   \
                   #their "." #field)
#define SAME_PLACE(mine, their, my_field, field)                                                                       \
    _Static_assert(offsetof(mine, my_field) == offsetof(their, field), #their "." #field)
#define SAME_VALUE(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #theirs)

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 their_kernel;
typedef CUpti_ActivityMemcpy6 their_memcpy;
typedef CUpti_ActivitySynchronization2 their_sync;
#else
typedef CUpti_ActivityKernel9 their_kernel;
typedef CUpti_ActivityMemcpy5 their_memcpy;
typedef CUpti_ActivitySynchronization their_sync;
#endif
SAME_FIELD(stitch__cupti_kernel, their_kernel, kind, kind);
SAME_FIELD(stitch__cupti_kernel, their_kernel, registers, registersPerThread);
SAME_FIELD(stitch__cupti_kernel, their_kernel, start, start);
SAME_FIELD(stitch__cupti_kernel, their_kernel, end, end);
SAME_FIELD(stitch__cupti_kernel, their_kernel, device, deviceId);
SAME_FIELD(stitch__cupti_kernel, their_kernel, context, contextId);
SAME_FIELD(stitch__cupti_kernel, their_kernel, stream, streamId);
SAME_PLACE(stitch__cupti_kernel, their_kernel, grid, gridX);
SAME_PLACE(stitch__cupti_kernel, their_kernel, grid[2], gridZ);
SAME_PLACE(stitch__cupti_kernel, their_kernel, block, blockX);
SAME_PLACE(stitch__cupti_kernel, their_kernel, block[2], blockZ);
SAME_FIELD(stitch__cupti_kernel, their_kernel, static_shared, staticSharedMemory);
SAME_FIELD(stitch__cupti_kernel, their_kernel, dynamic_shared, dynamicSharedMemory);
SAME_FIELD(stitch__cupti_kernel, their_kernel, local_per_thread, localMemoryPerThread);
SAME_FIELD(stitch__cupti_kernel, their_kernel, correlation, correlationId);
SAME_FIELD(stitch__cupti_kernel, their_kernel, name, name);
SAME_FIELD(stitch__cupti_kernel, their_kernel, graph_node, graphNodeId);
SAME_FIELD(stitch__cupti_kernel, their_kernel, graph, graphId);
_Static_assert(sizeof(stitch__cupti_kernel) <= sizeof(their_kernel), "kernel records");
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, copy_kind, copyKind);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, src_kind, srcKind);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, dst_kind, dstKind);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, bytes, bytes);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, start, start);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, end, end);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, device, deviceId);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, stream, streamId);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, correlation, correlationId);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, graph_node, graphNodeId);
SAME_FIELD(stitch__cupti_memcpy, their_memcpy, graph, graphId);
_Static_assert(sizeof(stitch__cupti_memcpy) <= sizeof(their_memcpy), "copy records");
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, bytes, bytes);
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, start, start);
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, stream, streamId);
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, correlation, correlationId);
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, graph_node, graphNodeId);
SAME_FIELD(stitch__cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4, graph, graphId);
_Static_assert(sizeof(stitch__cupti_memcpy_peer) <= sizeof(CUpti_ActivityMemcpyPtoP4), "peer copy records");
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, bytes, bytes);
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, start, start);
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, stream, streamId);
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, correlation, correlationId);
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, graph_node, graphNodeId);
SAME_FIELD(stitch__cupti_memset, CUpti_ActivityMemset4, graph, graphId);
_Static_assert(sizeof(stitch__cupti_memset) <= sizeof(CUpti_ActivityMemset4), "fill records");
SAME_FIELD(stitch__cupti_api, CUpti_ActivityAPI, callback, cbid);
SAME_FIELD(stitch__cupti_api, CUpti_ActivityAPI, start, start);
SAME_FIELD(stitch__cupti_api, CUpti_ActivityAPI, thread, threadId);
SAME_FIELD(stitch__cupti_api, CUpti_ActivityAPI, correlation, correlationId);
SAME_FIELD(stitch__cupti_api, CUpti_ActivityAPI, result, returnValue);
SAME_FIELD(stitch__cupti_sync, their_sync, type, type);
SAME_FIELD(stitch__cupti_sync, their_sync, start, start);
SAME_FIELD(stitch__cupti_sync, their_sync, end, end);
SAME_FIELD(stitch__cupti_sync, their_sync, context, contextId);
SAME_FIELD(stitch__cupti_sync, their_sync, stream, streamId);
_Static_assert(sizeof(stitch__cupti_sync) <= sizeof(their_sync), "synchronisation records");
_Static_assert(sizeof(CUptiResult) == sizeof(int) && sizeof(CUpti_ActivityKind) == sizeof(int), "enums");
SAME_VALUE(STITCH__CUPTI_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_VALUE(STITCH__CUPTI_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME_VALUE(STITCH__CUPTI_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_VALUE(STITCH__CUPTI_KIND_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL);
SAME_VALUE(STITCH__CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_VALUE(STITCH__CUPTI_KIND_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER);
SAME_VALUE(STITCH__CUPTI_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME);
SAME_VALUE(STITCH__CUPTI_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME_VALUE(STITCH__CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME_VALUE(STITCH__CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
SAME_VALUE(STITCH__CUPTI_DOMAIN_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API);
SAME_VALUE(STITCH__CUPTI_OUT_OF_MEMORY, CUPTI_ERROR_OUT_OF_MEMORY);
SAME_VALUE(STITCH__CUPTI_NOT_COMPATIBLE, CUPTI_ERROR_NOT_COMPATIBLE);
SAME_VALUE(STITCH__CUPTI_NOT_INITIALIZED, CUPTI_ERROR_NOT_INITIALIZED);
SAME_VALUE(STITCH__CUPTI_INVALID_KIND, CUPTI_ERROR_INVALID_KIND);
SAME_VALUE(STITCH__CUPTI_HARDWARE_BUSY, CUPTI_ERROR_HARDWARE_BUSY);
SAME_VALUE(STITCH__CUPTI_NOT_SUPPORTED, CUPTI_ERROR_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_VIRTUALIZED, CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME_VALUE(STITCH__CUPTI_OLD_PROFILER, CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
SAME_VALUE(STITCH__CUPTI_LEGACY_PROFILER, CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_VIRTUALIZED_PRIVILEGES, CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
SAME_VALUE(STITCH__CUPTI_CONFIDENTIAL_COMPUTING, CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_WSL, CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_UNKNOWN, CUPTI_ERROR_UNKNOWN);
#if CUPTI_API_VERSION >= 130000
SAME_FIELD(stitch__cupti_subscriber_params, CUpti_SubscriberParams, struct_size, structSize);
SAME_FIELD(stitch__cupti_subscriber_params, CUpti_SubscriberParams, name, subscriberName);
SAME_FIELD(stitch__cupti_subscriber_params, CUpti_SubscriberParams, holder, oldSubscriberName);
SAME_FIELD(stitch__cupti_subscriber_params, CUpti_SubscriberParams, holder_size, oldSubscriberSize);
#endif
#endif

#endif
