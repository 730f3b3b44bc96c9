#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>
/* ping ... ADDRESS: one echo request by a raw socket, and its answer. */
int main(int count, char **words) {
    const char *to = words[count - 1];
    int six = strchr(to, ':') != 0;
    struct sockaddr_in6 six_to = {.sin6_family = AF_INET6};
    struct sockaddr_in four_to = {.sin_family = AF_INET};
    unsigned char echo[8] = {8, 0, 0xf7, 0xff}, got[256];
    if (six) { inet_pton(AF_INET6, to, &six_to.sin6_addr); echo[0] = 128; }
    else inet_pton(AF_INET, to, &four_to.sin_addr);
    int s = six ? socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6) : socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (s < 0) return 2;
    struct timeval patience = {.tv_sec = 1};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (six ? connect(s, (void *)&six_to, sizeof six_to) : connect(s, (void *)&four_to, sizeof four_to)) return 2;
    for (int i = 0; i < 2; i++) {
        if (send(s, echo, sizeof echo, 0) < 0) return 1;
        if (recv(s, got, sizeof got, 0) > 0) return 0;
    }
    return 1;
}
