/* The least that an io_uring relay can do: LISTEN_PORT SERVER_PORT, both of 127.0.0.1, one thread.
 *
 * Multishot accept and receive, provided buffers, a received buffer sent from where it is, one io_uring_enter a batch with deferred task work. It measures what the
 * ring saves by the message, and is no forwarder: no half-close, no resets, no timeouts, no logs, and a side that does not read takes all the buffers. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 4096, BUFFERS = 4096, BUFFER_BYTES = 8192, SOCKETS = 20000 };
enum { ACCEPT = 1, RECEIVE, SEND };

static struct io_uring_sqe *sqes;
static unsigned *sq_head, *sq_tail, *sq_array, sq_mask, *cq_head, *cq_tail, cq_mask;
static struct io_uring_cqe *cqes;
static struct io_uring_buf_ring *pool;
static char *memory;
static int ring, peer[SOCKETS], ended[SOCKETS], sending[SOCKETS];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void enter(unsigned wait) {
    unsigned submit = *sq_tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE);
    if (syscall(SYS_io_uring_enter, ring, submit, wait, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && errno != EINTR && errno != EBUSY)
        fail("io_uring_enter");
}

static struct io_uring_sqe *request(int operation, int fd, uint64_t tag) {
    if (*sq_tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE) == ENTRIES) enter(0);
    unsigned tail = *sq_tail, index = tail & sq_mask;
    struct io_uring_sqe *sqe = &sqes[index];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = operation, sqe->fd = fd, sqe->user_data = tag;
    sq_array[index] = index;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    return sqe;
}

static void give_back(unsigned short buffer) {
    unsigned short tail = pool->tail;
    struct io_uring_buf *place = &pool->bufs[tail & (BUFFERS - 1)];
    place->addr = (uint64_t)(uintptr_t)(memory + (size_t)buffer * BUFFER_BYTES), place->len = BUFFER_BYTES, place->bid = buffer;
    __atomic_store_n(&pool->tail, tail + 1, __ATOMIC_RELEASE);
}

static uint64_t tag(int kind, int fd, unsigned buffer) { return (uint64_t)kind << 56 | (uint64_t)fd << 16 | buffer; }

static void receive(int fd) {
    struct io_uring_sqe *sqe = request(IORING_OP_RECV, fd, tag(RECEIVE, fd, 0));
    sqe->ioprio = IORING_RECV_MULTISHOT, sqe->flags = IOSQE_BUFFER_SELECT, sqe->buf_group = 0;
}

static void close_pair(int fd) {
    int other = peer[fd];
    if (ended[fd] && ended[other] && !sending[fd] && !sending[other]) close(fd), close(other);
}

static void accepted(int client, const struct sockaddr_in *server) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || fd >= SOCKETS || client >= SOCKETS || connect(fd, (const void *)server, sizeof *server) < 0) fail("connect");
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    peer[client] = fd, peer[fd] = client, ended[client] = ended[fd] = sending[client] = sending[fd] = 0;
    receive(client), receive(fd);
}

static void received(int fd, const struct io_uring_cqe *cqe) {
    if (cqe->res == -ENOBUFS) return receive(fd);
    if (cqe->res <= 0) {
        ended[fd] = 1;
        shutdown(peer[fd], SHUT_WR);
        return close_pair(fd);
    }
    unsigned buffer = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
    struct io_uring_sqe *sqe = request(IORING_OP_SEND, peer[fd], tag(SEND, fd, buffer));
    sqe->addr = (uint64_t)(uintptr_t)(memory + (size_t)buffer * BUFFER_BYTES), sqe->len = cqe->res;
    sqe->msg_flags = MSG_WAITALL | MSG_NOSIGNAL;
    sending[fd]++;
    if (!(cqe->flags & IORING_CQE_F_MORE)) receive(fd);
}

static void set_up(void) {
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = 4 * ENTRIES};
    ring = syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (ring < 0) fail("io_uring_setup");
    size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof *cqes;
    char *rings = mmap(NULL, sq_bytes > cq_bytes ? sq_bytes : cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, ENTRIES * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    memory = mmap(NULL, (size_t)BUFFERS * BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pool = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rings == MAP_FAILED || sqes == MAP_FAILED || memory == MAP_FAILED || pool == MAP_FAILED) fail("mmap");
    sq_head = (unsigned *)(rings + params.sq_off.head), sq_tail = (unsigned *)(rings + params.sq_off.tail);
    sq_array = (unsigned *)(rings + params.sq_off.array), sq_mask = *(unsigned *)(rings + params.sq_off.ring_mask);
    cq_head = (unsigned *)(rings + params.cq_off.head), cq_tail = (unsigned *)(rings + params.cq_off.tail);
    cqes = (struct io_uring_cqe *)(rings + params.cq_off.cqes), cq_mask = *(unsigned *)(rings + params.cq_off.ring_mask);
    struct io_uring_buf_reg registration = {.ring_addr = (uint64_t)(uintptr_t)pool, .ring_entries = BUFFERS, .bgid = 0};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &registration, 1) < 0) fail("io_uring_register");
    for (int buffer = 0; buffer < BUFFERS; buffer++) give_back(buffer);
}

int main(int count, char **arguments) {
    if (count != 3) return fprintf(stderr, "usage: uring_relay LISTEN_PORT SERVER_PORT\n"), 2;
    struct sockaddr_in listen_at = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in server = listen_at;
    server.sin_port = htons(atoi(arguments[2]));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&listen_at, sizeof listen_at) < 0 || listen(listener, 4096) < 0) fail("listen");
    set_up();
    request(IORING_OP_ACCEPT, listener, tag(ACCEPT, listener, 0))->ioprio = IORING_ACCEPT_MULTISHOT;
    for (;;) {
        enter(1);
        unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
        for (; head != tail; head++) {
            struct io_uring_cqe cqe = cqes[head & cq_mask];
            __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
            int fd = (cqe.user_data >> 16) & 0xffffffff;
            switch (cqe.user_data >> 56) {
            case ACCEPT:
                if (cqe.res < 0) return fprintf(stderr, "accept: %s\n", strerror(-cqe.res)), 1;
                accepted(cqe.res, &server);
                break;
            case RECEIVE:
                received(fd, &cqe);
                break;
            case SEND:
                give_back(cqe.user_data & 0xffff);
                sending[fd]--;
                if (ended[fd]) close_pair(fd);
            }
        }
    }
}
