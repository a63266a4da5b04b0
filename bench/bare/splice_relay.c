/* The least that a relay by splice(2) can do: LISTEN_PORT SERVER_PORT [REST_US], both of 127.0.0.1, one thread.
 *
 * Two pipes of 1 MiB a connection, an epoll loop, and REST_US microseconds of sleep after each round, so that a round finds more to move. It measures what the
 * kernel takes to move a stream, and is no forwarder: no resets, no timeouts, no limits, no logs, no bytes counted. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOCKETS = 20000, PIPE_BYTES = 1 << 20, EVENTS = 256 };

/* What is read of a socket and not yet written to its peer lies in the pipe of the socket that it was read of. */
struct side {
    int peer, in, out, held, ended, done;
};

static struct side sides[SOCKETS];
static int loop;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int fd) {
    int pipes[2];
    if (fd >= SOCKETS || pipe2(pipes, O_NONBLOCK | O_CLOEXEC) < 0 || fcntl(pipes[1], F_SETPIPE_SZ, PIPE_BYTES) < 0) fail("pipe2");
    sides[fd].in = pipes[1], sides[fd].out = pipes[0];
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
}

static void accepted(int client, const struct sockaddr_in *server) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || fd >= SOCKETS || client >= SOCKETS || connect(fd, (const void *)server, sizeof *server) < 0) fail("connect");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(client, F_SETFL, O_NONBLOCK) < 0) fail("fcntl");
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sides[client] = (struct side){.peer = fd}, sides[fd] = (struct side){.peer = client};
    watch(client), watch(fd);
}

/* Moves what can be moved from a socket to its peer. */
static void move(int fd) {
    struct side *side = &sides[fd];
    for (;;) {
        ssize_t got = side->ended ? 0 : splice(fd, NULL, side->in, NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (got > 0) side->held += got;
        else if (got == 0 || errno != EAGAIN) side->ended = 1;
        if (side->held == 0) break;
        ssize_t put = splice(side->out, NULL, side->peer, NULL, side->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (put < 0 && errno == EAGAIN) return;
        if (put < 0) side->held = 0, side->ended = 1;
        else side->held -= put;
    }
    if (side->ended && !side->done) side->done = 1, shutdown(side->peer, SHUT_WR);
}

static void close_pair(int fd) {
    int both[] = {fd, sides[fd].peer};
    if (!sides[both[0]].done || !sides[both[1]].done) return;
    for (int each = 0; each < 2; each++) close(sides[both[each]].in), close(sides[both[each]].out), close(both[each]);
    sides[both[0]].peer = sides[both[1]].peer = 0;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) return fprintf(stderr, "usage: splice_relay LISTEN_PORT SERVER_PORT [REST_US]\n"), 2;
    int rest = count == 4 ? atoi(arguments[3]) : 0, one = 1;
    struct sockaddr_in listen_at = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in server = listen_at;
    server.sin_port = htons(atoi(arguments[2]));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&listen_at, sizeof listen_at) < 0 || listen(listener, 4096) < 0) fail("listen");
    loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[EVENTS];
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event) < 0) fail("epoll");
    for (;;) {
        int found = epoll_wait(loop, ready, EVENTS, -1);
        if (found < 0 && errno != EINTR) fail("epoll_wait");
        for (int each = 0; each < found; each++) {
            int fd = ready[each].data.fd;
            if (fd == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (client < 0) fail("accept4");
                accepted(client, &server);
            } else if (sides[fd].peer) {
                if (ready[each].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) move(fd);
                if (ready[each].events & EPOLLOUT) move(sides[fd].peer);
                close_pair(fd);
            }
        }
        if (rest) usleep(rest);
    }
}
