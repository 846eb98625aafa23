// Works in functions whose shares of the CPU time it counts and prints: hot SECONDS [NEXT ARGUMENT...]. With NEXT it
// runs that program in the end.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

volatile unsigned long sink;

__attribute__((noinline)) void work_most(long n) {
    unsigned long x = sink;
    for (long i = 0; i < n; i++) x = x * 6364136223846793005UL + 1442695040888963407UL;
    sink = x;
}

__attribute__((noinline)) void work_less(long n) {
    unsigned long x = sink;
    for (long i = 0; i < n; i++) x = (x ^ (x >> 13)) * 0x9E3779B97F4A7C15UL;
    sink = x;
}

__attribute__((noinline)) void work_deep(long n, int depth) {
    if (depth > 0) {
        work_deep(n, depth - 1);
        sink++;
        return;
    }
    unsigned long x = sink;
    for (long i = 0; i < n; i++) x = x / 3 + 7;
    sink = x;
}

int main(int count, char **arguments) {
    double length = count > 1 ? atof(arguments[1]) : 1, begin = now(), most = 0, less = 0, deep = 0, at = begin;
    while (at - begin < length) {
        work_most(60000);
        double next = now();
        most += next - at;
        at = next;
        work_less(20000);
        next = now();
        less += next - at;
        at = next;
        work_deep(20000, 30);
        next = now();
        deep += next - at;
        at = next;
    }
    if (count > 2) {
        execv(arguments[2], arguments + 2);
        return 1;
    }
    double all = at - begin;
    printf("work_most %.4f work_less %.4f work_deep %.4f\n", most / all, less / all, deep / all);
    return 0;
}
