/* SPDX-License-Identifier: MIT
 *
 * Workers for tests. $CUDA_STITCH_TEST_WORKER (a name that a worker's environment keeps) says which one:
 *   unset         the real one, with answers to probes
 *   OP:BEHAVIOUR  one that answers every request as if all went well, without a device, and misbehaves at the first
 *                 request OP ("RUN:segv"); what it can do: misbehave()
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stitch/version.h>

#include "worker/protocol.h"

/* ---- probes: what can be done from inside a worker --------------------------------------------------------------- */

/* "refused" if the kernel says that it may not, else what else happened. */
static void put_result(stitch__buf *answer, bool worked)
{
    int error = errno;
    if (worked)
        stitch__buf_puts(answer, "allowed");
    else if (error == EPERM || error == EACCES)
        stitch__buf_puts(answer, "refused");
    else
        stitch__buf_printf(answer, "failed: %s", strerror(error));
}

static bool try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool try_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* A request of a file system's type to something that knows none: where nothing is in the way, "not a typewriter". */
static bool try_ioctl(int type)
{
    return ioctl(STITCH__WORKER_FD, _IO(type, 0)) == 0;
}

/* Makes an object that outlives this process, and takes it away again. */
static bool try_ipc(const char *kind)
{
    int id;
    if (strcmp(kind, "memory") == 0) {
        id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        if (id >= 0)
            shmctl(id, IPC_RMID, NULL);
        return id >= 0;
    }
    if (strcmp(kind, "semaphores") == 0) {
        id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
        if (id >= 0)
            semctl(id, 0, IPC_RMID);
        return id >= 0;
    }
    if (strcmp(kind, "messages") == 0) {
        id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        if (id >= 0)
            msgctl(id, IPC_RMID, NULL);
        return id >= 0;
    }
    id = (int)syscall(SYS_mq_open, "stitch-worker-was-here", O_RDWR | O_CREAT, 0600, NULL);
    if (id >= 0)
        syscall(SYS_mq_unlink, "stitch-worker-was-here");
    return id >= 0;
}

static bool try_fork(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid > 0;
}

/* Whether the bytes of `pattern` (each with 1 added, so that the question is no hit) are anywhere in this process. */
static bool find_bytes(const char *pattern)
{
    char line[512], wanted[256];
    size_t len = strlen(pattern);
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");

    if (!maps || len >= sizeof(wanted) || !len)
        return true; /* a search that could not be made must not look like a good result */
    for (size_t i = 0; i < len; i++)
        wanted[i] = (char)(pattern[i] - 1);
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    char *block = malloc(1 << 20);
    size_t searched = 0;
    while (memory >= 0 && block && fgets(line, sizeof(line), maps)) {
        unsigned long from, to;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || mode[0] != 'r' || strstr(line, "[v"))
            continue;
        if (to - from > 4ul << 30) /* a reservation: a sanitizer's, or the driver's */
            continue;
        for (unsigned long at = from; at < to; at += (1 << 20) - len) {
            size_t want = to - at < (1 << 20) ? to - at : 1 << 20;
            ssize_t n = pread(memory, block, want, (off_t)at);
            if (n <= 0)
                break;
            searched += (size_t)n;
            for (char *hit = block; (hit = memmem(hit, (size_t)n - (size_t)(hit - block), wanted, len)); hit++) {
                unsigned long where = at + (unsigned long)(hit - block);
                bool own = (where >= (unsigned long)wanted && where < (unsigned long)wanted + sizeof(wanted)) ||
                           (where >= (unsigned long)block && where < (unsigned long)block + (1 << 20));
                found = found || !own;
            }
        }
    }
    memset(wanted, 0, sizeof(wanted));
    free(block);
    if (memory >= 0)
        close(memory);
    fclose(maps);
    return found || !searched;
}

static void put_environment(stitch__buf *answer)
{
    extern char **environ;
    for (char **e = environ; *e; e++)
        stitch__buf_printf(answer, "%s\n", *e);
}

static void put_descriptors(stitch__buf *answer)
{
    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            stitch__buf_printf(answer, "%d ", fd);
}

static void put_limit(stitch__buf *answer, const char *name, int which)
{
    struct rlimit now = {0, 0};

    (void)getrlimit(which, &now);
    stitch__buf_printf(answer, "%s %lld%s, ", name, (long long)now.rlim_max,
                       now.rlim_cur == now.rlim_max ? "" : " (less)");
}

static bool keep_processors(pid_t pid)
{
    cpu_set_t set;
    return sched_getaffinity(pid, sizeof(set), &set) == 0 && sched_setaffinity(pid, sizeof(set), &set) == 0;
}

/* What the process has given up that no single call would show. */
static void put_limits(stitch__buf *answer)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct held[2] = {{0}};
    bool known = syscall(SYS_capget, &head, held) == 0;

    put_limit(answer, "core", RLIMIT_CORE);
    put_limit(answer, "files", RLIMIT_FSIZE);
    put_limit(answer, "descriptors", RLIMIT_NOFILE);
    stitch__buf_printf(
        answer, "capabilities %s, new ones %s, dumpable %d, nice %d, session %s",
        known && !(held[0].effective | held[0].permitted | held[1].effective | held[1].permitted) ? "none" : "some",
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? "never" : "possible", prctl(PR_GET_DUMPABLE),
        getpriority(PRIO_PROCESS, 0), getsid(0) == getpid() ? "its own" : "another's");
}

static void probe(const char *question, stitch__buf *answer)
{
    const char *argument = strchr(question, ' ');
    argument = argument ? argument + 1 : "";
    errno = 0;
    if (strncmp(question, "write ", 6) == 0)
        put_result(answer, try_open(argument, O_WRONLY | O_CREAT));
    else if (strncmp(question, "read ", 5) == 0)
        put_result(answer, try_open(argument, O_RDONLY));
    else if (strcmp(question, "socket") == 0)
        put_result(answer, try_socket());
    else if (strncmp(question, "madvise ", 8) == 0) /* of no memory at all */
        put_result(answer, syscall(SYS_madvise, 0, 0, atoi(argument)) == 0);
    else if (strncmp(question, "ioctl ", 6) == 0)
        put_result(answer, try_ioctl(atoi(argument)));
    else if (strncmp(question, "ipc ", 4) == 0)
        put_result(answer, try_ipc(argument));
    else if (strncmp(question, "attach ", 7) == 0) /* memory that somebody else has made */
        put_result(answer, shmat(atoi(argument), NULL, SHM_RDONLY) != (void *)-1);
    else if (strcmp(question, "limits") == 0)
        put_limits(answer);
    else if (strcmp(question, "dump") == 0)
        put_result(answer, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
    else if (strcmp(question, "type") == 0) /* a character into a terminal; 2: there is none */
        put_result(answer, ioctl(2, TIOCSTI, "x") == 0);
    else if (strncmp(question, "renice ", 7) == 0) /* to what it has already: nothing changes */
        put_result(answer, setpriority(PRIO_PROCESS, (id_t)atoi(argument),
                                       getpriority(PRIO_PROCESS, (id_t)atoi(argument))) == 0);
    else if (strncmp(question, "processors ", 11) == 0)
        put_result(answer, keep_processors(atoi(argument)));
    else if (strncmp(question, "pages ", 6) == 0)
        put_result(answer, syscall(SYS_move_pages, atoi(argument), 0L, NULL, NULL, NULL, 0) == 0);
    else if (strcmp(question, "clone3") == 0)
        put_result(answer, syscall(435, NULL, 0) > 0);
    else if (strcmp(question, "fork") == 0)
        put_result(answer, try_fork());
    else if (strcmp(question, "exec") == 0)
        put_result(answer, execl("/bin/true", "true", (char *)NULL) == 0);
    else if (strncmp(question, "kill ", 5) == 0)
        put_result(answer, kill(atoi(argument), 0) == 0);
    else if (strncmp(question, "find ", 5) == 0)
        stitch__buf_puts(answer, find_bytes(argument) ? "found" : "not found");
    else if (strcmp(question, "environment") == 0)
        put_environment(answer);
    else if (strcmp(question, "descriptors") == 0)
        put_descriptors(answer);
    else if (strcmp(question, "segv") == 0)
        raise(SIGSEGV);
    else if (strcmp(question, "print") == 0)
        for (int i = 0; i < 100000; i++) {
            fprintf(stderr, "flood %d\n", i);
            printf("flood %d\n", i);
        }
    else
        stitch__buf_puts(answer, "no such probe");
}

/* ---- a worker that lies ------------------------------------------------------------------------------------------ */

typedef struct fake {
    stitch__channel channel;
    stitch_context *ctx;
    size_t tensors;
    const char *op, *behaviour;
} fake;

static int named_op(const char *name, size_t len)
{
    static const char *const names[] = {"",
#define NAME(op, text) #op,
                                        STITCH__WORKER_REQUESTS(NAME)
#undef NAME
    };
    for (int i = 1; i < STITCH__OP_WORKER_COUNT; i++)
        if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0)
            return i;
    return 0;
}

static void send_raw(fake *f, const void *data, size_t len)
{
    while (len) {
        ssize_t n = send(f->channel.fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            _exit(0);
        data = (const char *)data + n;
        len -= (size_t)n;
    }
}

static void send_fds(fake *f)
{
    union {
        char bytes[CMSG_SPACE(20 * sizeof(int))];
        struct cmsghdr align;
    } control;
    int fds[20];
    char byte = 'S';
    struct iovec part = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);

    for (int i = 0; i < 20; i++)
        fds[i] = 0;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(head), fds, sizeof(fds));
    for (int i = 0; i < 70; i++) /* more than a header */
        sendmsg(f->channel.fd, &m, MSG_NOSIGNAL);
}

/* As if it had compiled a kernel k, whatever the source. */
static const char compiled_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
static char compiled[sizeof(compiled_ptx) - 1 + 6] = "";

static void good_compilation(fake *f, stitch__reply *r)
{
    size_t ptx = sizeof(compiled_ptx) - 1;

    memcpy(compiled, compiled_ptx, ptx);
    memcpy(compiled + ptx, "\1\0\0\0k\0", 6);
    r->pieces[STITCH__PIECE_PTX] = ptx;
    r->pieces[STITCH__PIECE_SYMBOLS] = 6;
    r->compiled = strcmp(f->op, "CODE") == 0 ? NULL : compiled; /* NULL: it is to be fetched */
}

static void good_reply(fake *f, int op, const stitch__request *q, stitch__reply *r, uint64_t hashes[4096])
{
    memset(r, 0, sizeof(*r));
    r->op = op;
    r->protocol = STITCH__WORKER_PROTOCOL;
    r->version = stitch_version_string();
    r->arch = strncmp(q->device, "sim:", 4) == 0 ? q->device + 4 : "";
    r->name = r->text = "fake";
    r->sandbox = "none at all";
    r->prepared.steps = 1;
    r->hash_count = f->tensors;
    memset(hashes, 0, f->tensors * sizeof(*hashes));
    if (op == STITCH__OP_WORKER_RUN_BLOCK) {
        r->run_count = q->block.count;
        r->hash_count *= r->run_count;
        memset(hashes, 0, r->hash_count * sizeof(*hashes));
    }
    if (op == STITCH__OP_WORKER_COMPILE)
        good_compilation(f, r);
    if (op == STITCH__OP_WORKER_HELLO && q->role == STITCH__WORKER_COMPILER && getenv("CUDA_STITCH_TEST_NVRTC")) {
        r->nvrtc_major = (uint32_t)atoi(getenv("CUDA_STITCH_TEST_NVRTC"));
        r->nvrtc_minor = (uint32_t)atoi(strchr(getenv("CUDA_STITCH_TEST_NVRTC"), '.') + 1);
    }
    if (op == STITCH__OP_WORKER_PROFILE)
        r->text = "{\"stitch_facts\":1}";
}

static void send_good(fake *f, int op, const stitch__reply *r, const uint64_t *hashes)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__reply_encode(r, hashes, &b);
    if (stitch__channel_send(&f->channel, NULL, op, &b, -1, "answering", NULL))
        _exit(0);
    stitch__buf_free(&b);
}

/* Sends a frame whose every part is right, but for what is changed. */
static void send_frame(fake *f, const stitch__frame *frame, bool reply, const void *payload, bool sign)
{
    uint8_t head[STITCH__FRAME_BYTES];
    stitch__frame bare = *frame;

    memset(bare.mac, 0, sizeof(bare.mac));
    stitch__frame_encode(&bare, reply, head);
    if (sign)
        stitch__hmac_sha256(f->channel.key, head, sizeof(head), payload, frame->bytes, bare.mac);
    stitch__frame_encode(&bare, reply, head);
    send_raw(f, head, sizeof(head));
    send_raw(f, payload, frame->bytes);
}

static void hang(void)
{
    for (;;)
        pause();
}

/* Ways to end or to stay away. Returns if the behaviour is another one. */
static void be_gone(fake *f)
{
    const char *b = f->behaviour;

    if (strcmp(b, "exit") == 0)
        _exit(3);
    if (strcmp(b, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strcmp(b, "words") == 0) {
        fprintf(stderr, "last words\x1b[31m\n");
        abort();
    }
    if (strcmp(b, "close") == 0) {
        close(f->channel.fd);
        hang();
    }
    if (strcmp(b, "stall") == 0)
        hang();
}

static void send_head(fake *f, const stitch__frame *frame)
{
    uint8_t head[STITCH__FRAME_BYTES];
    stitch__frame_encode(frame, true, head);
    send_raw(f, head, sizeof(head));
}

/* Bytes that are no proper message. false: the behaviour is another one. */
static bool send_wrong(fake *f, int op)
{
    static char noise[70000];
    const char *b = f->behaviour;
    stitch__frame frame = {.op = (uint32_t)op, .sequence = f->channel.sequence, .bytes = 100};

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)(i * 2654435761u >> 13);
    if (strcmp(b, "garbage") == 0) {
        send_raw(f, noise, sizeof(noise));
    } else if (strcmp(b, "zeros") == 0) {
        send_raw(f, (char[4096]){0}, 4096);
    } else if (strcmp(b, "truncate") == 0) {
        send_head(f, &frame);
        send_raw(f, noise, 10);
        _exit(0);
    } else if (strcmp(b, "half") == 0) {
        send_raw(f, "STW1", 4);
    } else if (strcmp(b, "flood") == 0) {
        for (;;)
            send_raw(f, noise, sizeof(noise));
    } else if (strcmp(b, "fds") == 0) {
        send_fds(f);
    } else if (strcmp(b, "huge") == 0) {
        frame.bytes = UINT32_MAX;
        send_head(f, &frame);
    } else if (strcmp(b, "unsigned") == 0) {
        send_frame(f, &frame, true, noise, false);
    } else if (strcmp(b, "signed-noise") == 0) {
        send_frame(f, &frame, true, noise, true);
    } else if (strcmp(b, "request") == 0) {
        send_frame(f, &frame, false, noise, true);
    } else if (strcmp(b, "replay") == 0) {
        frame.sequence--;
        send_frame(f, &frame, true, noise, true);
    } else {
        return false;
    }
    return true;
}

/* Proper messages that say what cannot be. */
static void send_lie(fake *f, int op, stitch__reply *r, uint64_t *hashes)
{
    const char *b = f->behaviour;

    if (strcmp(b, "other") == 0)
        op = r->op = STITCH__OP_WORKER_PING;
    else if (strcmp(b, "late") == 0)
        r->took[0].us = r->prepared.us = 1e9;
    else if (strcmp(b, "late-watch") == 0)
        r->took[0].least_us = 1e9;
    else if (strcmp(b, "late-together") == 0) { /* one run could have taken that long, all of them cannot */
        usleep(300000);
        r->took[0].us = r->took[1].least_us = 290000;
    } else if (strcmp(b, "nan") == 0)
        r->took[0].us = r->prepared.us = NAN;
    else if (strcmp(b, "negative") == 0)
        r->took[0].us = r->prepared.us = -1;
    else if (strcmp(b, "busy") == 0)
        r->busy_ns = UINT64_MAX;
    else if (strcmp(b, "status") == 0)
        r->rc = 7;
    else if (strcmp(b, "facts") == 0)
        r->text = "{\"stitch_facts\":1,\"run\":{\"busy_us\":1e300}}";
    else if (strcmp(b, "no-facts") == 0)
        r->text = "[1,2";
    else if (strcmp(b, "timeout") == 0)
        r->code = STITCH_E_TIMEOUT;
    else if (strcmp(b, "blame") == 0)
        r->code = STITCH_E_FAULT;
    else if (strcmp(b, "context") == 0)
        r->rc = STITCH_E_FAULT;
    else if (strcmp(b, "count") == 0)
        r->hash_count = f->tensors + 1;
    else if (strcmp(b, "fewer") == 0)
        r->run_count--;
    else if (strcmp(b, "no-symbol") == 0) {
        r->pieces[STITCH__PIECE_SYMBOLS] = 0;
    } else if (strcmp(b, "no-end") == 0) /* the symbol's text runs past its piece */
        r->pieces[STITCH__PIECE_SYMBOLS]--;
    else if (strcmp(b, "large-log") == 0) {
        r->pieces[STITCH__PIECE_LOG] = STITCH__WORKER_MAX_LOG + 1;
        r->compiled = NULL;
    } else if (strcmp(b, "large-code") == 0) {
        r->pieces[STITCH__PIECE_CUBIN] = STITCH__WORKER_MAX_CODE + 1ull;
        r->compiled = NULL;
    } else if (strcmp(b, "overflow") == 0) {
        r->pieces[STITCH__PIECE_PTX] = r->pieces[STITCH__PIECE_CUBIN] = UINT64_MAX / 2 + 1;
        r->compiled = NULL;
    } else if (strcmp(b, "call") == 0)
        r->rtc_call = STITCH__RTC_CALLS;
    else if (strcmp(b, "internal") == 0)
        r->result = NVRTC_ERROR_INTERNAL_ERROR;
    else if (strcmp(b, "memory") == 0)
        r->rc = STITCH_E_NOMEM;
    else if (strcmp(b, "not-ptx") == 0)
        memset(compiled, 0xff, sizeof(compiled_ptx) - 1);
    else if (strcmp(b, "empty") == 0)
        memset(compiled, 0, sizeof(compiled_ptx) - 1);
    else if (strcmp(b, "protocol") == 0)
        r->protocol++;
    else if (strcmp(b, "version") == 0)
        r->version = "0.0.0\x1b";
    else if (strcmp(b, "arch") == 0)
        r->arch = "sm_1";
    else
        _exit(99);
    send_good(f, op, r, hashes);
}

static void misbehave(fake *f, int op, stitch__reply *r, uint64_t *hashes)
{
    be_gone(f);
    if (strcmp(f->behaviour, "extra") == 0) { /* a good reply, and then more of them */
        for (int i = 0; i < 3; i++)
            send_good(f, op, r, hashes);
        return;
    }
    if (strcmp(f->behaviour, "escape") == 0) { /* an error that would write to a terminal */
        r->code = STITCH_E_DRIVER;
        r->message = "bad\x1b[2J\nnews\x07";
        r->details = "more\x1b";
        send_good(f, op, r, hashes);
        return;
    }
    if (!send_wrong(f, op))
        send_lie(f, op, r, hashes);
    hang();
}

static void count_tensors(fake *f, const stitch__request *q, int memory)
{
    uint64_t bytes = q->task_bytes + q->program_bytes;
    stitch_task *t = NULL;
    void *data = NULL;

    if (stitch__memory_map(f->ctx, memory, bytes, false, "the program", &data, NULL) ||
        stitch__worker_task_decode(f->ctx, data, (size_t)q->task_bytes, &t, NULL))
        _exit(98);
    f->tensors = stitch_interface_tensor_count(stitch_task_interface(t));
    stitch_task_free(t);
    stitch__memory_unmap(data, bytes);
}

static int run_fake(const char *mode)
{
    static uint64_t hashes[4096];
    fake f = {.channel = {.fd = STITCH__WORKER_FD, .server = true}};
    const char *colon = strchr(mode, ':');
    int wanted = named_op(mode, (size_t)(colon - mode)), op, memory;
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;

    f.behaviour = colon + 1;
    f.op = wanted == STITCH__OP_WORKER_CODE ? "CODE" : "";
    options.device = "none";
    options.cache_dir = "";
    if (stitch_context_new(&f.ctx, &options, NULL))
        return 98;
    while (stitch__channel_receive(&f.channel, NULL, &op, &memory, "waiting", NULL) == STITCH_OK) {
        stitch__request q;
        stitch__reply r;
        if (stitch__request_decode(op, f.channel.payload, f.channel.bytes, &q, NULL))
            return 97;
        if (op == STITCH__OP_WORKER_OPEN)
            count_tensors(&f, &q, memory);
        if (op == STITCH__OP_WORKER_CODE && memory >= 0 && pwrite(memory, compiled, sizeof(compiled), 0) < 0)
            return 96;
        good_reply(&f, op, &q, &r, hashes);
        if (op == wanted)
            misbehave(&f, op, &r, hashes);
        else
            send_good(&f, op, &r, hashes);
        if (memory >= 0)
            close(memory);
    }
    stitch__channel_close(&f.channel);
    stitch_context_free(f.ctx);
    return 0;
}

/* As if a later run had found what an earlier one left, and had written to it. */
static void other_hashes(uint64_t *hashes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hashes[i] ^= hashes[i] != 0;
}

/* As if a program had written to the memory of events. */
static void shorter_times(stitch__took *took, size_t count)
{
    for (size_t i = 0; i < count; i++)
        took[i].us /= 5;
}

int main(void)
{
    const char *mode = getenv("CUDA_STITCH_TEST_WORKER");
    const stitch__worker_hooks hooks = {probe, mode && strcmp(mode, "other-hashes") == 0 ? other_hashes : NULL,
                                        mode && strcmp(mode, "shorter-times") == 0 ? shorter_times : NULL};
    return mode && strchr(mode, ':') ? run_fake(mode) : stitch__worker_main(&hooks);
}
