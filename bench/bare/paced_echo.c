/* The least a generator can be that sends each request at an instant of its own: one thread, and three calls a request.
 *
 * What a paced rate costs anybody who does not send several requests at once. It sleeps until the next request is due, takes the
 * answer that the connection's last request left in the kernel meanwhile, and sends. Nobody wakes for an answer, nothing is measured but
 * how late the sends were.
 * Usage: paced_echo PORT CONNECTIONS RATE SECONDS; messages of 64 bytes. Prints how many requests were answered, and their mean lag. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST_CONNECTIONS = 1000, MESSAGE_BYTES = 64 };
static const long long SECOND = 1000000000;

static char message[MESSAGE_BYTES], answer[MESSAGE_BYTES];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

/* Takes an answer whole: it is there, or is waited for. */
static void take(int connection) {
    for (size_t length = 0; length < sizeof answer;) {
        ssize_t more = recv(connection, answer + length, sizeof answer - length, 0);
        must(more > 0, "recv");
        length += (size_t)more;
    }
}

int main(int argc, char **argv) {
    must(argc == 5, "usage: paced_echo PORT CONNECTIONS RATE SECONDS");
    int connections = atoi(argv[2]), one = 1;
    long long interval = SECOND / atoll(argv[3]), requests = atoll(argv[3]) * atoll(argv[4]), late = 0;
    must(connections > 0 && connections <= MOST_CONNECTIONS, "CONNECTIONS");
    /* Otherwise a sleep ends up to 50 us late, and as cheaply as others' timers allow (prctl(2)). */
    must(prctl(PR_SET_TIMERSLACK, 1) == 0, "prctl");
    int open[MOST_CONNECTIONS];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int each = 0; each < connections; each++) {
        open[each] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(open[each] >= 0, "socket");
        must(connect(open[each], (struct sockaddr *)&address, sizeof address) == 0, "connect");
        setsockopt(open[each], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    long long due = now();
    for (long long request = 0; request < requests; request++) {
        struct timespec until = {.tv_sec = due / SECOND, .tv_nsec = due % SECOND};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        int connection = open[request % connections];
        if (request >= connections) take(connection);
        late += now() - due;
        must(send(connection, message, sizeof message, 0) == sizeof message, "send");
        due += interval;
    }
    for (int each = 0; each < connections && each < requests; each++) take(open[each]);
    printf("{\"completed\":%lld,\"mean_lag_us\":%.1f}\n", requests, (double)late / (double)requests / 1e3);
    return 0;
}
