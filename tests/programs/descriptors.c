/* descriptors: moves data through descriptors in every way that a process has, in the current
   directory. Run again as `descriptors child FD…` it reads from those that an exec left open. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%d: %s failed: %m\n", __LINE__, #what); \
      exit(1); \
    } \
  } while (0)

static char buffer[1 << 16];

static int child(char **fds) {
  for (; *fds; fds++) {
    int fd = atoi(*fds);
    if (read(fd, buffer, 11) < 0) CHECK(write(fd, buffer, 0) < 0);
  }
  return 0;
}

static void run(const char *self, int a, int b, int c) {
  pid_t pid = fork();
  char names[3][16];
  CHECK(pid >= 0);
  if (pid == 0) {
    snprintf(names[0], 16, "%d", a), snprintf(names[1], 16, "%d", b), snprintf(names[2], 16, "%d", c);
    execl(self, self, "child", names[0], names[1], names[2], (char *)0);
    _exit(9);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void *own_file(void *number) {
  char name[32];
  snprintf(name, 32, "thread%ld", (long)number);
  int fd = open(name, O_RDWR | O_CREAT, 0666);
  CHECK(fd >= 0);
  for (int i = 0; i < 20; i++) CHECK(write(fd, buffer, 100 + (long)number) > 0);
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  while (read(fd, buffer, 333) > 0) {}
  CHECK(close(fd) == 0);
  return NULL;
}

/* Only reads of a byte each: a number of them in each of a number of processes. */
static int storm(long reads, long processes) {
  for (long i = 0; i < processes; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) continue;
    char name[32];
    snprintf(name, 32, "storm%ld", i);
    int fd = open(name, O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && pwrite(fd, buffer, 4096, 0) == 4096);
    for (long n = 0; n < reads; n++) CHECK(pread(fd, buffer, 1, n % 4096) == 1);
    _exit(0);
  }
  for (long i = 0; i < processes; i++) {
    int status;
    CHECK(wait(&status) > 0 && status == 0);
  }
  return 0;
}

/* A descriptor is sent over a socket; both read on where the other ended. */
static int send_file(void) {
  int ends[2], fd = open("sent", O_RDWR | O_CREAT, 0666), status;
  CHECK(fd >= 0 && write(fd, buffer, 100) == 100 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec one = {&byte, 1};
  struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(close(fd) == 0 && recvmsg(ends[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    int again = dup(fd);
    CHECK(pread(fd, buffer, 50, 0) == 50 && read(again, buffer, 20) == 20 && write(ends[1], &byte, 1) == 1);
    _exit(0);
  }
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  CHECK(lseek(fd, 10, SEEK_SET) == 10 && sendmsg(ends[0], &message, 0) == 1);
  CHECK(read(ends[0], &byte, 1) == 1 && read(fd, buffer, 30) == 30);
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 3 && !strcmp(argv[1], "storm")) return storm(atol(argv[2]), atol(argv[3]));
  if (argc > 1 && !strcmp(argv[1], "send")) return send_file();
  if (argc > 1 && !strcmp(argv[1], "child")) return child(argv + 2);
  int status;
  for (size_t i = 0; i < sizeof buffer; i++) buffer[i] = i * 7;
  int a = open("a", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  CHECK(a >= 0 && write(a, buffer, 60000) == 60000);

  /* Positions: at the position, elsewhere, after a seek from each side, beyond the end. */
  CHECK(pread(a, buffer, 100, 500) == 100 && pwrite(a, buffer, 50, 70000) == 50);
  CHECK(lseek(a, 10, SEEK_SET) == 10 && read(a, buffer, 10) == 10);
  CHECK(lseek(a, 5, SEEK_CUR) == 25 && read(a, buffer, 10) == 10);
  CHECK(lseek(a, -50, SEEK_END) == 70000 && read(a, buffer, 100) == 50 && read(a, buffer, 100) == 0);
  struct iovec two[2] = {{buffer, 30}, {buffer + 100, 40}};
  CHECK(lseek(a, 0, SEEK_SET) == 0 && readv(a, two, 2) == 70 && writev(a, two, 2) == 70);
  CHECK(preadv(a, two, 2, 1000) == 70 && preadv2(a, two, 2, 2000, 0) == 70);
  CHECK(preadv2(a, two, 1, -1, 0) == 30 && pwritev(a, two, 2, 3000) == 70 && read(a, buffer, 1) == 1);
  struct iovec many[100];
  for (int i = 0; i < 100; i++) many[i] = (struct iovec){buffer + i, 1 + i % 30};
  CHECK(preadv(a, many, 100, 40) == 1450 && pwritev2(a, many, 20, 80000, 0) == 210 && readv(a, many, 0) == 0);
  CHECK(syscall(SYS_readv, a, many, 1025) < 0 && syscall(SYS_preadv, a, 8, 1, 0, 0) < 0);
  CHECK(read(a, NULL, 0) == 0 && read(a, (void *)8, 10) < 0 && pread(a, buffer, 1, -1) < 0);

  /* One open file under several numbers, in several processes. */
  int b = dup(a), c = fcntl(a, F_DUPFD, 20), d = fcntl(a, F_DUPFD_CLOEXEC, 30);
  CHECK(dup2(a, 40) == 40 && dup3(a, 41, O_CLOEXEC) == 41 && read(b, buffer, 5) == 5);
  CHECK(c == 20 && d == 30 && read(41, buffer, 5) == 5);
  run(argv[0], b, 41, 40);
  CHECK(fcntl(41, F_SETFD, 0) == 0 && ioctl(40, FIOCLEX) == 0 && ioctl(d, FIONCLEX) == 0);
  run(argv[0], d, 41, 40);
  CHECK(close(41) == 0 && syscall(SYS_close_range, 40, 50, 0) == 0 && read(40, buffer, 1) < 0);
  pid_t pid = fork();
  if (pid == 0) {
    CHECK(read(c, buffer, 21) == 21 && close(c) == 0 && read(c, buffer, 1) < 0);
    int again = open("a", O_RDONLY);
    CHECK(again == b + 1 && read(again, buffer, 3) == 3);
    _exit(0);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0 && read(c, buffer, 22) == 22);
  pid = vfork();
  if (pid == 0) {
    execl(argv[0], argv[0], "child", "20", "20", "999", (char *)0);
    _exit(9);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);

  /* Numbers that are given again. */
  for (int i = 0; i < 50; i++) {
    char name[16];
    snprintf(name, 16, "n%d", i % 5);
    int fd = open(name, O_RDWR | O_CREAT, 0666);
    CHECK(fd == b + 1 && write(fd, buffer, 10 + i) == 10 + i && close(fd) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0 && ends[0] == fd && write(ends[1], buffer, 7) == 7 && read(ends[0], buffer, 7) == 7);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  }

  /* Appends, and a file without a name. */
  int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0666);
  for (int i = 0; i < 10; i++) CHECK(write(log, buffer, 9) == 9);
  CHECK(pwrite(log, buffer, 9, 1) == 9 && close(log) == 0);
  int nameless = open(".", O_RDWR | O_TMPFILE, 0666);
  CHECK(nameless >= 0 && write(nameless, buffer, 77) == 77 && pread(nameless, buffer, 70, 7) == 70);

  /* A mapping and a read see the same data, whichever layer serves them. */
  char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
  CHECK(map != MAP_FAILED);
  map[4000] = 'm';
  CHECK(pread(a, buffer, 1, 4000) == 1 && buffer[0] == 'm');
  CHECK(pwrite(a, "w", 1, 4001) == 1 && map[4001] == 'w');

  /* From one file to another, from the position on. */
  int to = open("to", O_RDWR | O_CREAT, 0666);
  CHECK(lseek(a, 100, SEEK_SET) == 100 && copy_file_range(a, NULL, to, NULL, 1000, 0) == 1000);
  CHECK(read(a, buffer, 6) == 6 && write(to, buffer, 6) == 6);

  pthread_t threads[8];
  for (long i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, own_file, (void *)i) == 0);
  for (int i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
