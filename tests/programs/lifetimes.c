/* Lives and deaths of processes: `lifetimes SCENE [ARGUMENT...]` plays one scene and says on
   standard output what a tracer must have seen. It ends with 0 when the system behaved towards
   the program as it should, and with a message and 99 when it did not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char self[] = "/proc/self/exe";
static char program[4096];

static void fail(const char *what) {
  printf("failed: %s: %s\n", what, strerror(errno));
  fflush(stdout);
  _exit(99);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition))

static void say(const char *name, long value) {
  printf("%s %ld\n", name, value);
  fflush(stdout);
}

static int status_of(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) != pid) CHECK(errno == EINTR);
  return status;
}

static void expect_exit(pid_t pid, int code) {
  int status = status_of(pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == code) return;
  printf("%ld: ended with status 0x%x, not with code %d\n", (long)pid, (unsigned)status, code);
  fail("an exit code");
}

static void expect_signal(pid_t pid, int signal) {
  int status = status_of(pid);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
}

static pid_t child(void) {
  fflush(stdout);
  pid_t pid = fork();
  CHECK(pid >= 0);
  return pid;
}

static void sleep_ms(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&time, &time) != 0) CHECK(errno == EINTR);
}

static double cpu_seconds(const struct rusage *usage) {
  return usage->ru_utime.tv_sec + usage->ru_utime.tv_usec / 1e6 + usage->ru_stime.tv_sec +
         usage->ru_stime.tv_usec / 1e6;
}

/* Uses at least `seconds` of CPU time in this thread, about half of it in the kernel. */
static void burn(double seconds) {
  struct rusage usage;
  int zero = open("/dev/zero", O_RDONLY);
  static char buffer[1 << 20];
  do {
    for (volatile long i = 0; i < 200000; i++) {
    }
    CHECK(read(zero, buffer, sizeof buffer) == sizeof buffer);
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  } while (cpu_seconds(&usage) < seconds);
  close(zero);
}

static void *in_thread(void *(*function)(void *), void *argument) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  int error = pthread_create(&thread, &attributes, function, argument);
  if (error) errno = error, fail("pthread_create");
  return (void *)thread;
}

static void *forever(void *unused) {
  for (;;) pause();
  return unused;
}

/* --- threads --------------------------------------------------------------------------------- */

static void *exec_exit_7(void *unused) {
  say("exec_by", gettid());
  execl(program, program, "exit", "7", NULL);
  fail("execl");
  return unused;
}

/* N threads wait, one more execs; the leader may be gone by then. */
static int threaded_exec(long threads, int leader_leaves) {
  for (long i = 0; i < threads; i++) in_thread(forever, NULL);
  in_thread(exec_exit_7, NULL);
  if (leader_leaves) pthread_exit(NULL);
  forever(NULL);
  return 99;
}

static void *nothing(void *unused) { return unused; }

static void *make_threads(void *unused) {
  /* pthread_detach reads what a thread that ends just then has unmapped: bug 19951 of glibc. */
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (;;) {
    pthread_t thread;
    pthread_create(&thread, &detached, nothing, NULL);
  }
  return unused;
}

static void *make_processes(void *unused) {
  for (;;) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, NULL, 0);
  }
  return unused;
}

/* Execs, and exits, in the middle of clones and forks by other threads. */
static int exec_while_cloning(long rounds) {
  for (long round = 0; round < rounds; round++) {
    pid_t pid = child();
    if (pid == 0) {
      in_thread(make_threads, NULL);
      in_thread(make_processes, NULL);
      in_thread(make_threads, NULL);
      usleep(200 + round * 137 % 3000);
      if (round % 2) execl(self, program, "exit", "0", NULL);
      _exit(0);
    }
    expect_exit(pid, 0);
  }
  return 0;
}

static void *work(void *argument) {
  burn(0.15);
  int null = open("/dev/null", O_WRONLY);
  char buffer[1000] = {0};
  for (int i = 0; i < 1000; i++) CHECK(write(null, buffer, sizeof buffer) == sizeof buffer);
  if (argument) exit(5);
  return NULL;
}

/* One worker ends early, the leader leaves, a second worker works on and ends the process. */
static int leader_first(void) {
  pthread_t first = (pthread_t)in_thread(work, NULL);
  pthread_join(first, NULL);
  in_thread(work, "exit");
  pthread_exit(NULL);
}

static int thread_storm(long threads) {
  for (long done = 0; done < threads; done += 50) {
    pthread_t thread[50];
    for (int i = 0; i < 50; i++) thread[i] = (pthread_t)in_thread(nothing, NULL);
    for (int i = 0; i < 50; i++) pthread_join(thread[i], NULL);
  }
  return 0;
}

/* --- spawning -------------------------------------------------------------------------------- */

static const char *kind;

static pid_t spawn(long number) {
  char code[16];
  snprintf(code, sizeof code, "%ld", number % 251);
  char *arguments[] = {program, "exit", code, NULL};
  pid_t pid;
  if (strcmp(kind, "posix_spawn") == 0) {
    CHECK(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
  } else if (strcmp(kind, "vfork") == 0) {
    pid = vfork();
    if (pid == 0) {
      execv(program, arguments);
      _exit(98);
    }
  } else {
    pid = fork();
    if (pid == 0) {
      execv(program, arguments);
      _exit(98);
    }
  }
  CHECK(pid > 0);
  return pid;
}

struct part {
  long first, last;
};

static void *spawn_part(void *argument) {
  struct part *part = argument;
  for (long i = part->first; i < part->last; i++) expect_exit(spawn(i), i % 251);
  return NULL;
}

/* N programs one after another, or from 32 threads at a time; number i ends with i % 251. */
static int storm(const char *how, long count) {
  long threads = strcmp(how, "threads") == 0 ? 32 : 1;
  kind = threads > 1 ? "posix_spawn" : how;
  struct part part[32];
  pthread_t thread[32];
  for (long i = 0; i < threads; i++) {
    part[i] = (struct part){count * i / threads, count * (i + 1) / threads};
    if (threads > 1) thread[i] = (pthread_t)in_thread(spawn_part, &part[i]);
  }
  if (threads == 1) spawn_part(&part[0]);
  for (long i = 0; threads > 1 && i < threads; i++) pthread_join(thread[i], NULL);
  struct rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  say("children_us", cpu_seconds(&usage) * 1e6);
  return 0;
}

/* --- ancestry -------------------------------------------------------------------------------- */

/* A daemon made in the usual way: fork, setsid, fork; it outlives all others. */
static int daemonize(long ms) {
  pid_t pid = child();
  if (pid == 0) {
    CHECK(setsid() == getpid());
    pid_t parent = getpid(), daemon = child();
    if (daemon == 0) {
      while (getppid() == parent) usleep(1000);
      fclose(stdout);
      close(2);
      sleep_ms(ms);
      _exit(11);
    }
    say("middle", getpid());
    say("daemon", daemon);
    _exit(10);
  }
  expect_exit(pid, 10);
  return 12;
}

/* A grandchild whose parent dies is reaped by this process, but was not made by it. */
static int subreaper(void) {
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  pid_t pid = child();
  if (pid == 0) {
    pid_t parent = getpid();
    if (child() == 0) {
      while (getppid() == parent) usleep(1000);
      _exit(21);
    }
    _exit(20);
  }
  say("middle", pid);
  expect_exit(pid, 20);
  int status;
  pid_t orphan = wait(&status);
  CHECK(orphan > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 21);
  say("orphan", orphan);
  return 0;
}

/* A child that is its maker's sibling: its maker does not reap it. */
static int sibling(void) {
  pid_t pid = child();
  if (pid == 0) {
    if (syscall(SYS_clone, (unsigned long)(CLONE_PARENT | SIGCHLD), 0, 0, 0, 0) == 0) _exit(23);
    _exit(22);
  }
  say("maker", pid);
  for (int i = 0; i < 2; i++) {
    int status;
    pid_t over = wait(&status);
    CHECK(over > 0 && WIFEXITED(status) && WEXITSTATUS(status) == (over == pid ? 22 : 23));
    if (over != pid) say("sibling", over);
  }
  return 0;
}

/* Makers that are killed while they fork: none of their children may hang. */
static int kill_makers(long rounds) {
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  for (long round = 0; round < rounds; round++) {
    pid_t pid = child();
    if (pid == 0) {
      for (;;) {
        pid_t made = fork();
        if (made == 0) _exit(0);
        if (round % 3 && made > 0) waitpid(made, NULL, 0);
      }
    }
    usleep(100 + round * 173 % 4000);
    kill(pid, SIGKILL);
    expect_signal(pid, SIGKILL);
    while (wait(NULL) > 0) {
    }
  }
  return 0;
}

/* In a pid namespace of its own, where the number of the next process can be chosen. */
static int reuse_pids(long count) {
  long same = 0;
  pid_t last = 0;
  for (long i = 0; i < count; i++) {
    int next = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
    CHECK(next >= 0 && write(next, "5000", 4) == 4);
    close(next);
    pid_t pid = child();
    if (pid == 0) _exit(i % 251);
    expect_exit(pid, i % 251);
    same += pid == last;
    last = pid;
  }
  say("same", same);
  return 0;
}

/* Like programs that restore others: each child gets the pid of the one before, as soon as that is reaped. Each makes
   a file. */
static int number_again(long count) {
  struct {
    unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
  } how = {.exit_signal = SIGCHLD, .set_tid_size = 1};
  pid_t number = child();
  if (number == 0) _exit(0);
  expect_exit(number, 0);
  how.set_tid = (unsigned long)&number;
  say("number", number);
  for (long i = 0; i < count; i++) {
    pid_t pid = syscall(SYS_clone3, &how, sizeof how);
    CHECK(pid >= 0);
    if (pid == 0) {
      char name[32];
      snprintf(name, sizeof name, "again.%ld", i);
      int file = open(name, O_CREAT | O_WRONLY, 0644);
      CHECK(file >= 0 && write(file, name, 3) == 3);
      _exit(i % 251);
    }
    expect_exit(pid, i % 251);
  }
  return 0;
}

/* --- execs ----------------------------------------------------------------------------------- */

static int exec_missing(void) {
  pid_t pid = child();
  if (pid == 0) {
    execl("/nowhere/no-such-program", "no-such-program", NULL);
    _exit(errno == ENOENT ? 127 : 99);
  }
  say("pid", pid);
  expect_exit(pid, 127);
  return 0;
}

static int odd_arguments(const char *which) {
  if (strcmp(which, "empty") == 0) execl(self, "", "exit", "3", "", "a b", NULL);
  if (strcmp(which, "bytes") == 0) execl(self, program, "exit", "3", "\xff\xfe", "caf\xc3\xa9", NULL);
  if (strcmp(which, "huge") == 0) {
    /* 2 MB in 21 arguments: one may have 128 KiB at most, all of them a quarter of the stack. */
    struct rlimit stack = {16 << 20, 16 << 20};
    CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
    char *arguments[25] = {program, "exit", "3"};
    for (int i = 3; i < 24; i++) {
      arguments[i] = malloc(100001);
      memset(arguments[i], 'a' + i % 26, 100000);
      arguments[i][100000] = 0;
    }
    execv(self, arguments);
  }
  if (strcmp(which, "renamed") == 0) execl(self, program, "rename-yourself", NULL);
  fail("exec");
  return 99;
}

static int rename_yourself(char **arguments) {
  strcpy(arguments[0], "another name");
  prctl(PR_SET_NAME, "other) R 1 (");
  pid_t pid = child();
  if (pid == 0) _exit(0);
  expect_exit(pid, 0);
  return 3;
}

/* --- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;
static void count(int signal) { caught += signal == SIGTRAP || signal == SIGUSR1 || signal > 31; }

static int trap_yourself(void) {
  signal(SIGTRAP, count);
  raise(SIGTRAP);
  CHECK(caught == 1);
#if defined __x86_64__ || defined __i386__
  __asm__ volatile("int3");
  CHECK(caught == 2);
#endif
  signal(SIGTRAP, SIG_DFL);
  pid_t pid = child();
  if (pid == 0) {
    prctl(PR_SET_DUMPABLE, 0);
    raise(SIGTRAP);
    _exit(0);
  }
  expect_signal(pid, SIGTRAP);
  return 0;
}

/* Every signal is delivered as often as it is sent. */
static int signals_arrive(void) {
  sigset_t set, before;
  sigemptyset(&set);
  int realtime = SIGRTMIN + 3;
  sigaddset(&set, realtime);
  signal(realtime, count);
  sigprocmask(SIG_BLOCK, &set, &before);
  union sigval value = {0};
  for (int i = 0; i < 100; i++) CHECK(sigqueue(getpid(), realtime, value) == 0);
  sigprocmask(SIG_SETMASK, &before, NULL);
  CHECK(caught == 100);
  signal(SIGUSR1, count);
  for (int i = 0; i < 100; i++) raise(SIGUSR1);
  CHECK(caught == 200);
  return 0;
}

static int stop_child(void) {
  // The child stops again only on request: a stop cancels a continuation that was not seen yet.
  int seen[2];
  CHECK(pipe(seen) == 0);
  pid_t pid = child();
  int status;
  char byte;
  if (pid == 0) {
    for (int i = 0; i < 3; i++) {
      raise(i == 1 ? SIGTSTP : SIGSTOP);
      CHECK(read(seen[0], &byte, 1) == 1);
    }
    _exit(4);
  }
  setpgid(pid, pid);
  for (int i = 0; i < 3; i++) {
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == (i == 1 ? SIGTSTP : SIGSTOP));
    sleep_ms(20);
    CHECK(waitpid(pid, &status, WNOHANG | WUNTRACED) == 0);
    CHECK(kill(pid, SIGCONT) == 0);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    CHECK(write(seen[1], "", 1) == 1);
  }
  expect_exit(pid, 4);
  pid = child();
  if (pid == 0) raise(SIGSTOP), _exit(0);
  CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
  kill(pid, SIGKILL);
  expect_signal(pid, SIGKILL);
  return 0;
}

static int kill_group(long members) {
  pid_t first = child();
  if (first == 0) {
    CHECK(setpgid(0, 0) == 0);
    for (long i = 1; i < members; i++)
      if (child() == 0) {
        in_thread(forever, NULL);
        forever(NULL);
      }
    say("ready", members);
    forever(NULL);
  }
  sleep_ms(100);
  CHECK(kill(-first, SIGKILL) == 0);
  expect_signal(first, SIGKILL);
  return 0;
}

/* --- system call filters ----------------------------------------------------------------------- */

static void filter(int number, unsigned action) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof code[0], code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static int own_filter(void) {
  pid_t pid = child();
  if (pid == 0) {
    filter(SYS_getpgid, SECCOMP_RET_ERRNO | ENOTTY);
    CHECK(getpgid(0) == -1 && errno == ENOTTY);
    /* Without a tracer the call does not exist. */
    filter(SYS_getsid, SECCOMP_RET_TRACE | 7);
    CHECK(getsid(0) == -1 && errno == ENOSYS);
    kind = "posix_spawn";
    expect_exit(spawn(17), 17);
    execl(self, program, "exit", "18", NULL);
  }
  expect_exit(pid, 18);
  pid = child();
  if (pid == 0) {
    prctl(PR_SET_DUMPABLE, 0);
    filter(SYS_getsid, SECCOMP_RET_KILL_PROCESS);
    getsid(0);
    _exit(0);
  }
  expect_signal(pid, SIGSYS);
  return 0;
}

/* Traces a child of its own, where it may: ends with 0 then, and with 1 where it may not. */
static int trace_child(void) {
  pid_t pid = child();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(errno == EPERM ? 1 : 99);
    _exit(0);
  }
  int status = status_of(pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* --- costs ------------------------------------------------------------------------------------- */

static int print_usage(const char *seconds) {
  burn(atof(seconds));
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("user_us %ld\nsys_us %ld\n", usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec,
         usage.ru_stime.tv_sec * 1000000L + usage.ru_stime.tv_usec);
  return 0;
}

int main(int argc, char **argv) {
  const char *scene = argc > 1 ? argv[1] : "";
  const char *argument = argc > 2 ? argv[2] : "";
  long number = atol(argument);
  ssize_t length = readlink(self, program, sizeof program - 1);
  CHECK(length > 0);
  program[length] = 0;
#define SCENE(name, call) if (strcmp(scene, name) == 0) return call
  SCENE("exit", number);
  SCENE("threaded-exec", threaded_exec(number, 0));
  SCENE("threaded-exec-without-leader", threaded_exec(number, 1));
  SCENE("exec-while-cloning", exec_while_cloning(number));
  SCENE("leader-first", leader_first());
  SCENE("thread-storm", thread_storm(number));
  SCENE("storm", storm(argument, atol(argc > 3 ? argv[3] : "0")));
  SCENE("daemonize", daemonize(number));
  SCENE("subreaper", subreaper());
  SCENE("sibling", sibling());
  SCENE("kill-makers", kill_makers(number));
  SCENE("reuse-pids", reuse_pids(number));
  SCENE("number-again", number_again(number));
  SCENE("exec-missing", exec_missing());
  SCENE("odd-arguments", odd_arguments(argument));
  SCENE("rename-yourself", rename_yourself(argv));
  SCENE("trap-yourself", trap_yourself());
  SCENE("signals-arrive", signals_arrive());
  SCENE("stop-child", stop_child());
  SCENE("kill-group", kill_group(number));
  SCENE("own-filter", own_filter());
  SCENE("trace-child", trace_child());
  SCENE("print-usage", print_usage(argument));
  errno = EINVAL;
  fail(scene);
}
