/* SPDX-License-Identifier: MIT
 *
 * What a worker gives up before it takes a program: files (Landlock), calls (seccomp), resources (rlimits). Each is
 * taken where the kernel has it, and said so in the greeting.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/protocol.h"

#define COMPILER_MEMORY (UINT64_C(8) << 30) /* at most half of the machine's */
#define COMPILER_LEAST  (UINT64_C(2) << 30) /* of addresses: NVRTC itself takes some hundreds of megabytes */
#define COMPILER_STACK  (64u << 20)         /* of its first thread; NVRTC runs on one of its own (nvrtc.c) */

static void note(stitch__buf *applied, const char *text)
{
    stitch__buf_printf(applied, "%s%s", applied->len ? ", " : "", text);
}

/* ---- resources --------------------------------------------------------------------------------------------------- */

static bool limit(int what, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(what, &now) != 0)
        return false;
    if (now.rlim_max == RLIM_INFINITY || now.rlim_max > most)
        now.rlim_max = most;
    now.rlim_cur = now.rlim_max;
    return setrlimit(what, &now) == 0;
}

/* A worker of root is root without its privileges. The files that belong to root are another matter: see Landlock. */
static bool drop_capabilities(bool *kept)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct held[2] = {{0}}, sets[2] = {{0}};

    /* The driver lets only this one count, unless it is told otherwise. The filter of calls (below) takes away what
     * else it would be good for: mounts, namespaces, swap, quotas, the kernel's own log, keys. */
    if (*kept && syscall(SYS_capget, &head, held) == 0)
        sets[0].permitted = sets[0].effective = held[0].permitted & 1u << CAP_SYS_ADMIN;
    *kept = sets[0].permitted != 0;
    for (int cap = 0; cap < 64; cap++) /* those that the kernel does not know, or that were not held, do not matter */
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    return syscall(SYS_capset, &head, sets) == 0;
}

void stitch__sandbox_limits(stitch__buf *applied)
{
    /* No limit of the address space: the driver reserves terabytes of it. None of the number of processes: it counts
     * all of the user's; seccomp refuses new ones. */
    bool good = limit(RLIMIT_CORE, 0), counts = getenv(STITCH__WORKER_COUNTS) != NULL;
    good = limit(RLIMIT_FSIZE, (rlim_t)1 << 30) && good;
    good = limit(RLIMIT_NOFILE, 4096) && good;
    (void)signal(SIGXFSZ, SIG_IGN); /* the worker's own process: main.c is all there is in it */
    (void)signal(SIGPIPE, SIG_IGN);
    if (drop_capabilities(&counts) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        note(applied, counts ? "no privileges but counting" : "no privileges");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        good = false;
    if (good)
        note(applied, "rlimits");
}

/* What the process has mapped already, in bytes: much, where a sanitizer is in it. */
static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void stitch__sandbox_compiler(stitch__buf *applied, uint64_t *memory)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES);
    uint64_t machine = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : COMPILER_MEMORY;
    int fd;

    *memory = machine / 2 < COMPILER_MEMORY ? machine / 2 : COMPILER_MEMORY;
    *memory = *memory > COMPILER_LEAST ? *memory : COMPILER_LEAST;
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* else the file is root's; nothing of a stranger's is here yet */
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (fd >= 0) {
        (void)!write(fd, "1000", 4); /* where memory ends, this process is the first to go */
        close(fd);
    }
    if (!limit(RLIMIT_AS, (rlim_t)(mapped_bytes() + *memory)) || !limit(RLIMIT_STACK, COMPILER_STACK))
        note(applied, "no limit of memory");
}

bool stitch__sandbox_spent(uint64_t memory)
{
    struct rlimit now;
    uint64_t used = mapped_bytes();

    return memory && getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur != RLIM_INFINITY &&
           used + memory / 4 * 3 > (uint64_t)now.rlim_cur;
}

void stitch__sandbox_seconds(uint32_t seconds)
{
    struct rusage used;
    struct rlimit now;

    if (getrusage(RUSAGE_SELF, &used) != 0 || getrlimit(RLIMIT_CPU, &now) != 0)
        return;
    now.rlim_cur = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 2 + seconds;
    if (now.rlim_cur < now.rlim_max)
        (void)setrlimit(RLIMIT_CPU, &now);
}

/* ---- files: Landlock --------------------------------------------------------------------------------------------- */

/* The kernel's interface, spelt out: headers of older systems lack its newer parts. */
#if !defined(SYS_landlock_create_ruleset)
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_ALL_1 = (1 << 13) - 1,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    FS_IOCTL_DEV = 1 << 15,
    NET_BIND_CONNECT = 3,
    SCOPE_SOCKETS_SIGNALS = 3,
    CREATE_VERSION = 1,
    RULE_PATH_BENEATH = 1,
};

typedef struct ruleset_attr {
    uint64_t fs, net, scoped;
} ruleset_attr;

typedef struct __attribute__((packed)) path_attr {
    uint64_t access;
    int32_t parent;
} path_attr;

static void allow(int ruleset, const char *path, uint64_t access)
{
    struct path_attr rule = {access, open(path, O_PATH | O_CLOEXEC)};
    struct stat st;
    if (rule.parent < 0)
        return;
    if (fstat(rule.parent, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.access &= ~(uint64_t)FS_READ_DIR; /* a rule for a file may not speak of folders */
    (void)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent);
}

static void allow_lines(int ruleset, const char *folders, uint64_t access)
{
    char path[4096];
    for (const char *at = folders; *at;) {
        size_t len = strcspn(at, "\n");
        if (len > 1 && len < sizeof(path) && *at == '/') {
            memcpy(path, at, len);
            path[len] = 0;
            allow(ruleset, path, access);
        }
        at += len + (at[len] == '\n');
    }
}

/* Device files that cannot harm, and (`all`) a GPU's. */
static void allow_devices(int ruleset, uint64_t access, bool all)
{
    static const char *const plain[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};
    static const char *const prefixes[] = {"nvidia", "nvhost", "nvmap", "dxg"};
    char path[300];
    DIR *folder = all ? opendir("/dev") : NULL;

    for (size_t i = 0; i < STITCH__COUNT(plain); i++)
        allow(ruleset, plain[i], access);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        for (size_t i = 0; i < STITCH__COUNT(prefixes); i++)
            if (strncmp(entry->d_name, prefixes[i], strlen(prefixes[i])) == 0) {
                snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
                allow(ruleset, path, access);
            }
    if (folder)
        closedir(folder);
}

void stitch__sandbox_files(const char *folders, bool with_device, stitch__buf *applied)
{
    static const char *const system[] = {"/usr",
                                         "/lib",
                                         "/lib64",
                                         "/lib32",
                                         "/bin",
                                         "/opt",
                                         "/etc/ld.so.cache",
                                         "/etc/ld.so.conf",
                                         "/etc/ld.so.conf.d",
                                         "/etc/nvidia",
                                         "/etc/alternatives",
                                         "/etc/localtime",
                                         "/nix/store",
                                         "/gnu/store"};
    static const char *const for_device[] = {"/etc/vulkan", "/sys", "/proc", "/run/opengl-driver",
                                             "/run/nvidia-persistenced"};
    static const char *const for_none[] = {"/proc/self", "/sys/devices/system/cpu"};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION);
    ruleset_attr attr = {FS_ALL_1, 0, 0};
    uint64_t read, device = FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR;
    size_t size = 8;
    char text[64];

    if (abi < 1) {
        note(applied, "no landlock (the kernel has none)");
        return;
    }
    attr.fs |= (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0);
    device |= attr.fs & FS_IOCTL_DEV;
    if (abi >= 4) {
        attr.net = NET_BIND_CONNECT;
        size = 16;
    }
    if (abi >= 6) {
        attr.scoped = SCOPE_SOCKETS_SIGNALS;
        size = 24;
    }
    read = FS_READ_FILE | FS_READ_DIR;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (ruleset < 0) {
        note(applied, "no landlock (no ruleset)");
        return;
    }
    for (size_t i = 0; i < STITCH__COUNT(system); i++)
        allow(ruleset, system[i], read);
    for (size_t i = 0; with_device && i < STITCH__COUNT(for_device); i++)
        allow(ruleset, for_device[i], read);
    for (size_t i = 0; !with_device && i < STITCH__COUNT(for_none); i++)
        allow(ruleset, for_none[i], read);
    allow_lines(ruleset, folders, read);
    allow_devices(ruleset, device, with_device);
    /* The driver gives its threads names (it opens with O_TRUNC), and does not start where it cannot. Which threads
     * that will be is not known yet, so it has to be the whole folder. As this process is not dumpable, what else is in
     * there belongs to root. To a worker of root it opens files of its own (memory, scores, labels) and those below
     * net/ that root may write. */
    if (with_device)
        allow(ruleset, "/proc/self/task", FS_WRITE_FILE | (attr.fs & FS_TRUNCATE));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0) {
        snprintf(text, sizeof(text), "landlock %ld", abi);
        note(applied, text);
    } else {
        note(applied, "no landlock (refused)");
    }
    close(ruleset);
}

/* ---- calls: seccomp ---------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH

#define NR(name) __NR_##name
/* Refused whatever their arguments are. Numbers that older headers lack are the same on every architecture. */
/* clang-format off */
static const uint32_t refused[] = {
    NR(socket), NR(connect), NR(bind), NR(listen), NR(accept), NR(accept4),
    NR(execve), NR(execveat), NR(unshare), NR(setns), NR(setsid),
    NR(ptrace), NR(process_vm_readv), NR(process_vm_writev), NR(tkill), NR(rt_sigqueueinfo), NR(rt_tgsigqueueinfo),
    NR(setpriority), NR(ioprio_set),
    NR(setuid), NR(setgid), NR(setreuid), NR(setregid), NR(setresuid), NR(setresgid), NR(setgroups), NR(setfsuid),
    NR(setfsgid), NR(capset), NR(keyctl), NR(add_key), NR(request_key),
    NR(mount), NR(umount2), NR(pivot_root), NR(chroot), NR(open_by_handle_at), NR(name_to_handle_at), NR(quotactl),
    NR(swapon), NR(swapoff), NR(acct), NR(fanotify_init),
    NR(kexec_load), NR(init_module), NR(finit_module), NR(delete_module), NR(reboot), NR(vhangup), NR(syslog),
    NR(bpf), NR(perf_event_open), NR(userfaultfd),
    /* System V IPC and message queues: no file rule covers them, and objects of other users could be taken away by who
     * may count. A worker has no use for them. */
    NR(shmget), NR(shmat), NR(shmctl), NR(semget), NR(semop), NR(semtimedop), NR(semctl),
    NR(msgget), NR(msgsnd), NR(msgrcv), NR(msgctl), NR(mq_open), NR(mq_unlink),
    NR(sethostname), NR(setdomainname), NR(settimeofday), NR(clock_settime), NR(adjtimex), NR(clock_adjtime),
#ifdef __NR_fork
    NR(fork), NR(vfork),
#endif
#ifdef __NR_kexec_file_load
    NR(kexec_file_load),
#endif
#ifdef __NR_iopl
    NR(iopl), NR(ioperm),
#endif
    424 /* pidfd_send_signal */, 425 /* io_uring_setup */, 426 /* io_uring_enter */, 427 /* io_uring_register */,
    428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */, 431 /* fsconfig */, 432 /* fsmount */, 433 /* fspick */,
    434 /* pidfd_open */, 438 /* pidfd_getfd */, 440 /* process_madvise */, 442 /* mount_setattr */,
    443 /* quotactl_fd */, 448 /* process_mrelease */,
};
/* clang-format on */

/* Their first argument is a process or a thread: 0, which is the thread that calls, or this process. */
static const uint32_t own_only[] = {
    NR(prlimit64),     NR(sched_setaffinity), NR(sched_setscheduler), NR(sched_setparam),
    NR(sched_setattr), NR(migrate_pages),     NR(move_pages),
};

enum { CLONE3 = 435, MAX_FILTER = 512 };

typedef struct filter {
    struct sock_filter code[MAX_FILTER];
    unsigned short count;
} filter;

static void emit(filter *f, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    if (f->count < MAX_FILTER)
        f->code[f->count++] = (struct sock_filter){code, yes, no, k};
}

static void answer(filter *f, int error)
{
    emit(f, BPF_RET | BPF_K, error ? SECCOMP_RET_ERRNO | (uint32_t)error : SECCOMP_RET_ALLOW, 0, 0);
}

static void load(filter *f, size_t offset)
{
    emit(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static size_t argument(int index)
{
    return offsetof(struct seccomp_data, args) + 8 * (size_t)index; /* its low half: both machines are little-endian */
}

/* A call that is refused unless the low half of an argument is `value` (or, `also_zero`, 0). The accumulator holds the
 * call's number before and after. */
static void only_with(filter *f, uint32_t number, int index, uint32_t value, bool also_zero)
{
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, number, 0, also_zero ? 5 : 4);
    load(f, argument(index));
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, value, also_zero ? 2 : 1, 0);
    if (also_zero)
        emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    answer(f, EPERM);
    answer(f, 0);
}

static void build(filter *f)
{
    load(f, offsetof(struct seccomp_data, arch));
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    answer(f, EPERM); /* 32-bit calls have other numbers */
    load(f, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    emit(f, BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1); /* x32 */
    answer(f, EPERM);
#endif
    for (size_t i = 0; i < STITCH__COUNT(refused); i++) {
        emit(f, BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1);
        answer(f, EPERM);
    }
    /* Its flags are behind a pointer, where a filter cannot look; libc then takes clone(). */
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, CLONE3, 0, 1);
    answer(f, ENOSYS);
    /* Threads, but no processes. */
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, NR(clone), 0, 4);
    load(f, argument(0));
    emit(f, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
    answer(f, EPERM);
    answer(f, 0);
    /* Signals to itself only (abort() and the like). */
    only_with(f, NR(kill), 0, (uint32_t)getpid(), false);
    only_with(f, NR(tgkill), 0, (uint32_t)getpid(), false);
    /* Limits, processors, scheduling and places of memory of its own only: the host's, or those of the worker that it
     * is compared with, would change what is measured. */
    for (size_t i = 0; i < STITCH__COUNT(own_only); i++)
        only_with(f, own_only[i], 0, (uint32_t)getpid(), true);
    /* It must not become traceable again, nor put characters into a terminal. */
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, NR(prctl), 0, 5);
    load(f, argument(0));
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, PR_SET_DUMPABLE, 1, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0x59616d61 /* PR_SET_PTRACER */, 0, 1);
    answer(f, EPERM);
    answer(f, 0);
    /* Nor take pages of memory from the machine, which CAP_SYS_ADMIN allows. */
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, NR(madvise), 0, 5);
    load(f, argument(2));
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 100 /* MADV_HWPOISON */, 1, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 101 /* MADV_SOFT_OFFLINE */, 0, 1);
    answer(f, EPERM);
    answer(f, 0);
    /* Nor ask a file system for anything (freeze, shut down, read its metadata): CAP_SYS_ADMIN allows that on any file
     * that can be opened. Types of requests of file systems; no driver of a GPU has them. */
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, NR(ioctl), 0, 8);
    load(f, argument(1));
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0x5412 /* TIOCSTI */, 5, 0);
    emit(f, BPF_ALU | BPF_AND | BPF_K, 0xff00, 0, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 'X' << 8, 3, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 'f' << 8, 2, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0x94 << 8 /* Btrfs */, 1, 0);
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0xf5 << 8 /* F2FS */, 0, 1);
    answer(f, EPERM);
    answer(f, 0);
}

void stitch__sandbox_calls(stitch__buf *applied)
{
    filter f = {.count = 0};
    build(&f);
    struct sock_fprog program = {f.count, f.code};
    if (f.count == MAX_FILTER || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        note(applied, "no seccomp (refused)");
    else if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0)
        note(applied, "seccomp");
    else /* some thread has a filter of its own, or the kernel has none */
        note(applied, "no seccomp (the kernel refused the filter)");
}

#else

void stitch__sandbox_calls(stitch__buf *applied)
{
    note(applied, "no seccomp (not for this machine)");
}

#endif
