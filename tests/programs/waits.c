// Waits in functions whose shares of the time it counts and prints: waits SECONDS. One thread sleeps and reads from a
// pipe; the other one writes into it now and then.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void sleep_for(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
    __asm__ volatile("");
}

static int ends[2];

__attribute__((noinline)) void wait_short(void) {
    sleep_for(1000);
    __asm__ volatile("");
}

__attribute__((noinline)) void wait_long(void) {
    sleep_for(7000);
    __asm__ volatile("");
}

__attribute__((noinline)) void wait_for_data(void) {
    char byte;
    if (read(ends[0], &byte, 1) != 1) exit(1);
    __asm__ volatile("");
}

static void *writes(void *unused) {
    for (;;) {
        sleep_for(5000);
        if (write(ends[1], "x", 1) != 1) return unused;
    }
}

int main(int count, char **arguments) {
    double length = count > 1 ? atof(arguments[1]) : 1, begin = now(), a = 0, b = 0, c = 0, at = begin;
    pthread_t other;
    if (pipe(ends) || pthread_create(&other, NULL, writes, NULL)) return 1;
    while (at - begin < length) {
        wait_short();
        double next = now();
        a += next - at;
        at = next;
        wait_long();
        next = now();
        b += next - at;
        at = next;
        // What was written in the meantime is there already: the third read waits.
        for (int i = 0; i < 3; i++) wait_for_data();
        next = now();
        c += next - at;
        at = next;
    }
    double all = at - begin;
    printf("wait_short %.4f wait_long %.4f wait_for_data %.4f\n", a / all, b / all, c / all);
    return 0;
}
