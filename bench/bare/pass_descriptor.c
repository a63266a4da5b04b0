/* What it costs to hand an accepted connection to a thread with a descriptor table of its own (SCM_RIGHTS over a socket pair), beside keeping it in the table that
 * accepted it. Usage: pass_descriptor keep|pass COUNT; prints CPU microseconds a connection: connect, accept, hand over, close both ends. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
};

static void give(int descriptor) {
    char byte = 0;
    union control control;
    memset(&control, 0, sizeof control);
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    must(sendmsg(pair[0], &message, 0) == 1, "sendmsg");
}

/* Closes each descriptor that arrives, in a table of its own. */
static void *take(void *count) {
    must(unshare(CLONE_FILES) == 0, "unshare");
    for (long left = (long)count; left > 0; left--) {
        char byte;
        union control control;
        struct iovec data = {&byte, 1};
        struct msghdr message = {
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        must(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1, "recvmsg");
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
        close(descriptor);
    }
    return NULL;
}

int main(int argc, char **argv) {
    must(argc == 3, "usage: pass_descriptor keep|pass COUNT");
    int pass = strcmp(argv[1], "pass") == 0;
    long count = atol(argv[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    must(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 128) == 0, "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    pthread_t thread;
    if (pass) must(pthread_create(&thread, NULL, take, (void *)count) == 0, "pthread_create");

    struct linger reset = {1, 0};
    for (long i = 0; i < count; i++) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(connect(client, (struct sockaddr *)&address, length) == 0, "connect");
        int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        must(server >= 0, "accept4");
        if (pass) give(server);
        close(server);
        setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); /* no TIME_WAIT: ports are few */
        close(client);
    }
    if (pass) pthread_join(thread, NULL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("%.3f\n", seconds / (double)count * 1e6);
    return 0;
}
