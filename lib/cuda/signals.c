/* SPDX-License-Identifier: MIT
 *
 * While it compiles, NVRTC has handlers of its own for SIGINT and SIGTERM in the place of the process's; they end the
 * process with exit code 4. What it puts back afterwards has lost its flags. So the threads that run it may not change
 * what signals do.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda/internal.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef SECCOMP_FILTER_FLAG_SPEC_ALLOW
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW (1UL << 2)
#endif

#ifdef ARCH

/* The low and the high half of an argument; both machines are little-endian. */
#define LOW(index)  (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (index))
#define HIGH(index) (LOW(index) + 4)
#define LOAD(at)                                                                                                       \
    {                                                                                                                  \
        BPF_LD | BPF_W | BPF_ABS, 0, 0, (at)                                                                           \
    }
#define JUMP(how, value, yes, no)                                                                                      \
    {                                                                                                                  \
        BPF_JMP | (how) | BPF_K, (yes), (no), (value)                                                                  \
    }
#define RETURN(value)                                                                                                  \
    {                                                                                                                  \
        BPF_RET | BPF_K, 0, 0, (value)                                                                                 \
    }

enum { REAL_TIME = 32 }; /* from here on signals are the C library's own and real-time ones */

bool stitch__signals_keep(void)
{
    /* Asking what a signal does stays allowed. signal() then fails, as for a signal that cannot be handled. */
    struct sock_filter code[] = {
        LOAD(offsetof(struct seccomp_data, arch)),
        JUMP(BPF_JEQ, ARCH, 0, 8),
        LOAD(offsetof(struct seccomp_data, nr)),
        JUMP(BPF_JEQ, __NR_rt_sigaction, 0, 6),
        LOAD(LOW(0)),
        JUMP(BPF_JGE, REAL_TIME, 4, 0),
        LOAD(LOW(1)),
        JUMP(BPF_JEQ, 0, 0, 3),
        LOAD(HIGH(1)),
        JUMP(BPF_JEQ, 0, 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EINVAL),
    };
    struct sock_fprog program = {(unsigned short)STITCH__COUNT(code), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0;
}

#else

bool stitch__signals_keep(void)
{
    return false;
}

#endif
