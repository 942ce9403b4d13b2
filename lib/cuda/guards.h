/* SPDX-License-Identifier: MIT
 *
 * Guarded device memory: what runs past either end of a buffer does not come back unseen.
 *
 * A guarded buffer ends (up to 255 bytes, for its alignment) where its mapped pages end, and there are unmapped ones on
 * both sides: a read or write past its end faults. What is mapped in front of it and those last bytes are filled with a
 * pattern that is looked at again. Needs the driver's virtual memory calls; costs at least 2 MiB a
 * buffer.
 */
#ifndef STITCH_LIB_GUARDS_H
#define STITCH_LIB_GUARDS_H

#include "cuda/cuda.h"

/* From now on stitch__mem_alloc() of this device makes guarded buffers. Returns whether the device can. */
bool stitch__guards_enable(stitch__device *dev);

/* Has anything written around the buffers? Writes what was found ("1 buffer: 12 bytes in front of y, the nearest 4
 * bytes before it") to `found`, or "", and puts the pattern back: what is found once is not found again. The device
 * must be idle. whole: in front all that is mapped is looked at, which takes a fraction of a millisecond a buffer; else
 * the last 64 KiB. */
int stitch__guards_check(stitch__device *dev, bool whole, stitch__buf *found, stitch_error **err);

/* ---- device memory that two processes use ---- */

/* Memory of this process that another one maps as a guarded buffer. Its physical pages outlive either process's use of
 * them, and a fault in the other one does not reach this one's context. */
typedef struct stitch__export {
    CUdeviceptr ptr;              /* of the buffer; 0: none */
    int fd;                       /* for the other process; -1: closed */
    CUdeviceptr reserved, mapped; /* as the other side lays it out: a page on both sides stays free */
    size_t reserved_bytes, mapped_bytes;
    CUmemGenericAllocationHandle handle;
} stitch__export;

/* Filled with zeros, for the driver may give pages that this process has had before: the other one is not to read in
 * them. `stream` is waited for. false: the device cannot, or there is no memory; *out is empty then. */
bool stitch__export_make(stitch__device *dev, size_t bytes, CUstream stream, stitch__export *out);
/* Nothing of this process uses it any more. An empty one is ignored. */
void stitch__export_close(stitch__device *dev, stitch__export *e);
/* The other side: a guarded buffer of `bytes` bytes on the memory behind `fd`, which stays the caller's, from address
 * `wanted` on (stitch__export.reserved; 0: anywhere) if that is free. Released with stitch__mem_free().
 * STITCH_E_UNSUPPORTED: no guards, or the driver cannot. */
int stitch__guards_import(stitch__device *dev, int fd, size_t bytes, const char *name, CUdeviceptr wanted,
                          CUdeviceptr *out, stitch_error **err);
/* The same buffer for something else: as after stitch__guards_import(), zeros in it and the pattern around it. The
 * device must be idle. */
int stitch__guards_renew(stitch__device *dev, CUdeviceptr ptr, const char *name, stitch_error **err);

/* device.c: */
CUresult stitch__guards_alloc(stitch__device *dev, size_t bytes, const char *name, CUdeviceptr *out);
bool stitch__guards_free(stitch__device *dev, CUdeviceptr ptr); /* false: it is not one of them */
void stitch__guards_close(stitch__device *dev);                 /* the list; the memory goes with the context */

#endif
