/* A stage of a pipeline whose truth is known. Options:
 *   -n N    make N blocks instead of reading them      -b BYTES  size of a block (16384)
 *   -c US   compute for each block, microseconds       -s US     sleep for each block
 *   -o      write nothing                              -f FILE   write each block to FILE, synced
 *   -l FILE lock FILE while computing                  -m FILE   read random pages of FILE, mapped
 *   -p N    of them for each block                     -x        run what follows as a child and wait
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void compute(double us) {
  volatile uint64_t x = 1;
  for (double end = cpu() + us; cpu() < end;)
    for (int i = 0; i < 2000; i++) x = x * 6364136223846793005u + 1;
}

int main(int argc, char **argv) {
  long blocks = -1, bytes = 16384, us = 0, sleep_us = 0, pages = 0;
  int silent = 0, sync_fd = -1, lock_fd = -1, option;
  char *map = NULL, *child = NULL;
  size_t map_size = 0;
  while ((option = getopt(argc, argv, "+n:b:c:s:of:l:m:p:x")) != -1) {
    switch (option) {
    case 'n': blocks = atol(optarg); break;
    case 'b': bytes = atol(optarg); break;
    case 'c': us = atol(optarg); break;
    case 's': sleep_us = atol(optarg); break;
    case 'o': silent = 1; break;
    case 'f': sync_fd = open(optarg, O_RDWR | O_CREAT | O_TRUNC, 0644); break;
    case 'l': lock_fd = open(optarg, O_RDWR | O_CREAT, 0644); break;
    case 'm': {
      int fd = open(optarg, O_RDONLY);
      struct stat st;
      fstat(fd, &st);
      map_size = st.st_size;
      map = mmap(NULL, map_size, PROT_READ, MAP_SHARED, fd, 0);
      madvise(map, map_size, MADV_RANDOM);
      break;
    }
    case 'p': pages = atol(optarg); break;
    case 'x': child = argv[optind]; break;
    default: return 2;
    }
  }
  if (child) {
    pid_t pid = fork();
    if (pid == 0) { execvp(child, argv + optind); _exit(127); }
    int status;
    waitpid(pid, &status, 0);
    return 0;
  }
  char *buffer = calloc(1, bytes);
  uint64_t state = 88172645463325252u + getpid();
  volatile char sink = 0;
  for (long i = 0; blocks < 0 || i < blocks; i++) {
    if (blocks < 0) {
      long got = 0, n;
      while (got < bytes && (n = read(0, buffer + got, bytes - got)) > 0) got += n;
      if (got == 0) break;
    }
    if (lock_fd >= 0) flock(lock_fd, LOCK_EX);
    if (us) compute(us);
    if (lock_fd >= 0) flock(lock_fd, LOCK_UN);
    if (sleep_us) usleep(sleep_us);
    for (long p = 0; map && p < pages; p++) {
      state ^= state << 13; state ^= state >> 7; state ^= state << 17;
      sink += map[state % map_size];
    }
    if (sync_fd >= 0) {
      if (pwrite(sync_fd, buffer, bytes, (i % 64) * bytes) < 0) return 1;
      fsync(sync_fd);
    }
    if (!silent)
      for (long put = 0, n; put < bytes; put += n)
        if ((n = write(1, buffer + put, bytes - put)) <= 0) return 0;
  }
  return 0;
}
