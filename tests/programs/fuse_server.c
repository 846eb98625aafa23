// A FUSE server in one thread that keeps a few files in memory: `fuse_server DIRECTORY [MILLISECONDS]`. Before nearly every
// answer it waits for that time, and then opens a file of its own, as servers that pass files on do. It ends when it is unmounted. A
// lookup of a name that begins with "stuck" makes it sleep until it is killed. Without arguments it makes a file whose name is in a
// page of the program of its own.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, LONGEST = 1 << 20, PIECE = 1 << 16, FIRST = 2, ROOT = 1 };

struct entry {
    char name[256];
    char bytes[LONGEST];
    size_t size;
    int is_there;
    struct timespec read, changed;
};

static const struct {
    char before[1 << 17], name[4096], after[1 << 17];
} made __attribute__((aligned(4096))) = {.name = "made-by-constant"};

static struct entry files[MOST];
static int device;
static long delay_ms;

static void answer(uint64_t unique, int error, const void *body, size_t length) {
    struct fuse_out_header head = {sizeof head + length, -error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, length}};
    if (writev(device, parts, 2) < 0 && errno != ENOENT)
        perror("answer");
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    if (node == ROOT) {
        found.mode = S_IFDIR | 0755;
        found.nlink = 2;
        return found;
    }
    struct entry *file = &files[node - FIRST];
    found.mode = S_IFREG | 0755;
    found.size = file->size;
    found.atime = file->read.tv_sec;
    found.atimensec = file->read.tv_nsec;
    found.mtime = found.ctime = file->changed.tv_sec;
    found.mtimensec = found.ctimensec = file->changed.tv_nsec;
    return found;
}

static int find(const char *name) {
    for (int i = 0; i < MOST; i++)
        if (files[i].is_there && strcmp(files[i].name, name) == 0)
            return i;
    return -1;
}

static int make(const char *name) {
    static int used;
    if (used == MOST)
        exit(3);
    struct entry *file = &files[used];
    snprintf(file->name, sizeof file->name, "%s", name);
    file->is_there = 1;
    clock_gettime(CLOCK_REALTIME_COARSE, &file->changed);
    file->read = file->changed;
    return used++;
}

static struct fuse_entry_out entry(int i) {
    struct fuse_entry_out found = {.nodeid = i + FIRST, .entry_valid = 1, .attr_valid = 1};
    found.attr = attributes(i + FIRST);
    return found;
}

static void work(const char *name) {
    if (strncmp(name, "stuck", 5) == 0)
        for (;;)
            pause();
    struct timespec wait = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
    // Not one of the files that are known by their name alone.
    int file = open("/etc/passwd", O_RDONLY);
    if (file >= 0)
        close(file);
}

static void serve(struct fuse_in_header *head, char *body) {
    uint64_t unique = head->unique, node = head->nodeid;
    struct entry *file = node >= FIRST ? &files[node - FIRST] : NULL;
    switch (head->opcode) {
    case FUSE_INIT: {
        struct fuse_init_in *in = (void *)body;
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = PIECE};
        out.max_readahead = in->max_readahead < 4096 ? in->max_readahead : 4096;
        out.time_gran = 1;
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_LOOKUP: {
        work(body);
        int i = find(body);
        struct fuse_entry_out out = i < 0 ? (struct fuse_entry_out){0} : entry(i);
        answer(unique, i < 0 ? ENOENT : 0, &out, i < 0 ? 0 : sizeof out);
        return;
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        work("");
        if (head->opcode == FUSE_SETATTR && file) {
            struct fuse_setattr_in *in = (void *)body;
            if (in->valid & FATTR_SIZE && in->size <= LONGEST) {
                file->size = in->size;
                clock_gettime(CLOCK_REALTIME_COARSE, &file->changed);
            }
        }
        struct fuse_attr_out out = {.attr_valid = 1, .attr = attributes(node)};
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        work("");
        struct fuse_open_out out = {0};
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_CREATE: {
        work("");
        struct {
            struct fuse_entry_out entry;
            struct fuse_open_out open;
        } out = {entry(make(body + sizeof(struct fuse_create_in))), {0}};
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        work("");
        struct fuse_read_in *in = (void *)body;
        size_t there = in->offset < file->size ? file->size - in->offset : 0;
        answer(unique, 0, file->bytes + in->offset, there < in->size ? there : in->size);
        return;
    }
    case FUSE_WRITE: {
        struct fuse_write_in *in = (void *)body;
        struct fuse_write_out out = {.size = in->size};
        if (in->offset + in->size > LONGEST) {
            answer(unique, ENOSPC, NULL, 0);
            return;
        }
        memcpy(file->bytes + in->offset, body + sizeof *in, in->size);
        if (file->size < in->offset + in->size)
            file->size = in->offset + in->size;
        clock_gettime(CLOCK_REALTIME_COARSE, &file->changed);
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_UNLINK: {
        work("");
        int i = find(body);
        if (i >= 0)
            files[i].is_there = 0;
        answer(unique, i < 0 ? ENOENT : 0, NULL, 0);
        return;
    }
    case FUSE_RENAME:
    case FUSE_RENAME2: {
        work("");
        size_t before = head->opcode == FUSE_RENAME ? sizeof(struct fuse_rename_in) : sizeof(struct fuse_rename2_in);
        const char *from = body + before, *to = from + strlen(from) + 1;
        int moved = find(from), over = find(to);
        if (moved >= 0) {
            if (over >= 0)
                files[over].is_there = 0;
            snprintf(files[moved].name, sizeof files[moved].name, "%s", to);
        }
        answer(unique, moved < 0 ? ENOENT : 0, NULL, 0);
        return;
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
        answer(unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_READDIR:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
        answer(unique, 0, NULL, 0);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        return;
    default:
        answer(unique, ENOSYS, NULL, 0);
    }
}

int main(int count, char **arguments) {
    if (count < 2)
        return open(made.name, O_CREAT | O_EXCL | O_WRONLY, 0600) < 0;
    delay_ms = count > 2 ? atol(arguments[2]) : 0;
    char options[128];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || mount("server", arguments[1], "fuse.server", 0, options) != 0) {
        perror("fuse_server");
        return 1;
    }
    static char request[PIECE + 4096] __attribute__((aligned(8)));
    for (;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (length < (ssize_t)sizeof(struct fuse_in_header))
            return errno == ENODEV ? 0 : 1;
        request[length] = 0;
        serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}
