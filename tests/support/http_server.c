/* SPDX-License-Identifier: MIT
 *
 * A scripted HTTP server on 127.0.0.1 for tests.
 */
#include "http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 1024, MAX_REQUEST = 1 << 16, MAX_ENDLESS = 256 << 20 };

struct connection {
    http_server *server;
    int fd, number;
    pthread_t thread;
    char request[MAX_REQUEST];
};

struct http_server {
    const http_answer *answers;
    size_t count;
    int listener, port;
    atomic_int connections, open, peak, stopping;
    pthread_t thread;
    struct connection *all[MAX_CONNECTIONS];
};

static void nap(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static void read_request(struct connection *c)
{
    size_t len = 0, want = 0;
    while (len + 1 < sizeof(c->request)) {
        ssize_t n = recv(c->fd, c->request + len, sizeof(c->request) - 1 - len, 0);
        if (n <= 0)
            return;
        len += (size_t)n;
        c->request[len] = 0;
        char *end = strstr(c->request, "\r\n\r\n");
        if (!end)
            continue;
        char *length = strcasestr(c->request, "content-length:");
        want = (size_t)(end + 4 - c->request) + (length ? strtoul(length + 15, NULL, 10) : 0);
        if (len >= want)
            return;
    }
}

static int send_all(struct connection *c, const char *p, size_t len)
{
    while (len) {
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
        if (n <= 0 || atomic_load(&c->server->stopping))
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void send_body(struct connection *c, const http_answer *a)
{
    size_t len = a->body_len ? a->body_len : strlen(a->body), sent = 0;
    for (int round = 0; a->repeat_body < 0 ? sent < MAX_ENDLESS : round < (a->repeat_body ? a->repeat_body : 1);
         round++) {
        for (size_t at = 0; at < len;) {
            size_t n = a->chunk && (size_t)a->chunk < len - at ? (size_t)a->chunk : len - at;
            if (a->delay_ms)
                nap(a->delay_ms);
            if (send_all(c, a->body + at, n) != 0)
                return;
            at += n;
            sent += n;
        }
    }
    for (int waited = 0; waited < a->linger_ms && !atomic_load(&c->server->stopping); waited += 10)
        nap(10);
}

static int send_head(struct connection *c, const http_answer *a)
{
    for (const char *p = a->head; a->head_delay_ms && *p; p++) {
        nap(a->head_delay_ms);
        if (send_all(c, p, 1) != 0)
            return -1;
    }
    if (!a->head_delay_ms && send_all(c, a->head, strlen(a->head)) != 0)
        return -1;
    return send_all(c, "\r\n\r\n", 4);
}

static void *serve(void *userdata)
{
    struct connection *c = userdata;
    http_server *s = c->server;
    const http_answer *a = &s->answers[(size_t)c->number < s->count ? (size_t)c->number : s->count - 1];
    int open = atomic_fetch_add(&s->open, 1) + 1, peak = atomic_load(&s->peak);
    while (open > peak && !atomic_compare_exchange_weak(&s->peak, &peak, open)) {
    }
    read_request(c);
    if (a->head && send_head(c, a) == 0 && a->body)
        send_body(c, a);
    shutdown(c->fd, SHUT_RDWR);
    close(c->fd);
    atomic_fetch_sub(&s->open, 1);
    return NULL;
}

static void *accept_all(void *userdata)
{
    http_server *s = userdata;
    while (!atomic_load(&s->stopping)) {
        struct pollfd p = {s->listener, POLLIN, 0};
        if (poll(&p, 1, 20) <= 0)
            continue;
        int fd = accept(s->listener, NULL, NULL), number = atomic_load(&s->connections);
        if (fd < 0 || number == MAX_CONNECTIONS) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        struct connection *c = calloc(1, sizeof(*c));
        c->server = s;
        c->fd = fd;
        c->number = number;
        s->all[number] = c;
        atomic_store(&s->connections, number + 1); /* before anything of it can be seen */
        if (pthread_create(&c->thread, NULL, serve, c) != 0)
            abort();
    }
    return NULL;
}

http_server *http_server_start(const http_answer *answers, size_t count)
{
    http_server *s = calloc(1, sizeof(*s));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    s->answers = answers;
    s->count = count;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(s->listener, 64) != 0 || getsockname(s->listener, (struct sockaddr *)&address, &size) != 0) {
        perror("http_server");
        abort();
    }
    s->port = ntohs(address.sin_port);
    pthread_create(&s->thread, NULL, accept_all, s);
    return s;
}

int http_server_port(const http_server *s)
{
    return s->port;
}

int http_server_connections(const http_server *s)
{
    return atomic_load(&((http_server *)(uintptr_t)s)->connections);
}

int http_server_peak(const http_server *s)
{
    return atomic_load(&((http_server *)(uintptr_t)s)->peak);
}

const char *http_server_request(const http_server *s, int connection)
{
    return connection < http_server_connections(s) ? s->all[connection]->request : "";
}

void http_server_stop(http_server *s)
{
    atomic_store(&s->stopping, 1);
    pthread_join(s->thread, NULL);
    int n = atomic_load(&s->connections);
    for (int i = 0; i < n; i++)
        shutdown(s->all[i]->fd, SHUT_RDWR);
    for (int i = 0; i < n; i++) {
        pthread_join(s->all[i]->thread, NULL);
        free(s->all[i]);
    }
    close(s->listener);
    free(s);
}
