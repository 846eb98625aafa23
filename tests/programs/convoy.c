/* Threads that queue for one lock, each of which keeps it for a while. Prints the ids of the threads in
   the order in which they got it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, KEEP_MS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *takes_its_turn(void *unused) {
    struct timespec keep = {0, KEEP_MS * 1000000L};
    pthread_mutex_lock(&lock);
    printf("%d\n", gettid());
    nanosleep(&keep, NULL);
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_mutex_lock(&lock);
    printf("%d\n", gettid());
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, takes_its_turn, NULL) != 0)
            return 1;
    /* All of them wait by then, unless the machine is very busy. */
    struct timespec begin = {0, 100 * 1000000L};
    nanosleep(&begin, NULL);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
