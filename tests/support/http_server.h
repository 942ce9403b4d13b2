/* SPDX-License-Identifier: MIT
 *
 * A scripted HTTP server on 127.0.0.1 for tests: each connection gets the next answer of a list.
 */
#ifndef STITCH_TESTS_HTTP_SERVER_H
#define STITCH_TESTS_HTTP_SERVER_H

#include <stddef.h>
#include <stdint.h>

/* What the server does with one connection. */
typedef struct http_answer {
    const char *head; /* everything up to the empty line, without it; NULL: close at once */
    const char *body; /* may be NULL; body_len 0: strlen */
    size_t body_len;
    int repeat_body;   /* send the body this often (0: once); -1: until the client leaves, at most 256 MiB */
    int chunk;         /* bytes a write (0: all at once) */
    int delay_ms;      /* before each write of the body */
    int linger_ms;     /* after the body, before closing */
    int head_delay_ms; /* before each byte of the head (0: all at once) */
} http_answer;

typedef struct http_server http_server;

/* The last answer is repeated for further connections. */
http_server *http_server_start(const http_answer *answers, size_t count);
int http_server_port(const http_server *s);
int http_server_connections(const http_server *s);
int http_server_peak(const http_server *s); /* connections open at once, at most */
/* The request (head and body) of a connection, "" if there was none. Valid until stop. */
const char *http_server_request(const http_server *s, int connection);
void http_server_stop(http_server *s);

#endif
