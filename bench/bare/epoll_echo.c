/* The least an epoll echo server can be: one thread, level-triggered, one read and one write a request.
 *
 * What our epoll model is measured against. It has no totals, no partial writes, no drain: a peer that does not read is dropped.
 * Usage: epoll_echo PORT; prints "listening" when it can be connected to. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 256, INPUT_BYTES = 64 * 1024 };

static char input[INPUT_BYTES];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    must(argc == 2, "usage: epoll_echo PORT");
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(listener >= 0, "socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listener, SOMAXCONN) == 0, "listen");

    int set = epoll_create1(EPOLL_CLOEXEC);
    must(set >= 0, "epoll_create1");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[BATCH];
    must(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0, "epoll_ctl");
    puts("listening");
    fflush(stdout);

    for (;;) {
        int count = epoll_wait(set, events, BATCH, -1);
        must(count >= 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < count; i++) {
            int socket = events[i].data.fd;
            if (socket == listener) {
                event.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (event.data.fd >= 0) must(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0, "epoll_ctl");
                continue;
            }
            ssize_t length = recv(socket, input, sizeof input, 0);
            if (length < 0 && errno == EAGAIN) continue;
            if (length <= 0 || send(socket, input, (size_t)length, MSG_NOSIGNAL) != length) close(socket);
        }
    }
}
