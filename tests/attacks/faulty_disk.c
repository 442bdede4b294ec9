/* A disk that fails when it is told to: preloaded, it stands between SQLite and the kernel.

   Calls that change a file below one folder are counted. The n-th of them is performed and then the
   process is killed, or killed before, or it fails, or it writes half; or every call is only noted,
   so that a power cut at any instant can be played back. Nothing happens until somebody arms it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { OFF, COUNT, KILL_BEFORE, KILL_AFTER, FAIL, HALF, NOTE };

static char below[4096];
static int how = OFF, failure = EIO, lasting = 0, notes = -1;
static long nth = 0, calls = 0;

void disk_arm(const char *folder, int what, long when, int error, int forever, int note_fd) {
    snprintf(below, sizeof below, "%s/", folder);
    failure = error, lasting = forever, notes = note_fd, nth = when, calls = 0, how = what;
}

long disk_calls(void) { return calls; }

static void put(const void *data, size_t size) {
    const char *next = data;
    while (size > 0) {
        ssize_t done = syscall(SYS_write, notes, next, size);
        if (done <= 0) _exit(99);
        next += done, size -= done;
    }
}

static void note(char what, const char *path, int64_t offset, const void *data, size_t size) {
    if (how != NOTE) return;
    uint32_t length = strlen(path);
    uint64_t wide = size;
    put(&what, 1), put(&length, 4), put(path, length), put(&offset, 8), put(&wide, 8), put(data, size);
}

static int watched(const char *path) {
    return how != OFF && strncmp(path, below, strlen(below)) == 0;
}

static int watched_fd(int fd, char *path) {
    char link[64];
    if (how == OFF) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    size_t folder = strlen(below) - 1;
    return watched(path) || ((size_t)length == folder && strncmp(path, below, folder) == 0);
}

/* What is to happen to this call: 0 as always, 1 it fails, 2 only half of it is done. */
static int turn(void) {
    calls++;
    if (!(calls == nth || (lasting && calls > nth))) return 0;
    if (how == KILL_BEFORE) kill(getpid(), SIGKILL);
    if (how == FAIL || how == HALF) errno = failure;
    return how == FAIL ? 1 : how == HALF ? 2 : 0;
}

static void after(void) {
    if (how == KILL_AFTER && calls == nth) kill(getpid(), SIGKILL);
}

#define REAL(name, result, ...)                                  \
    static result (*real)(__VA_ARGS__);                          \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name);

static ssize_t written(ssize_t (*real)(int, const void *, size_t, off_t), int fd, const void *data,
                       size_t size, off_t offset) {
    char path[4096];
    if (!watched_fd(fd, path)) return real(fd, data, size, offset);
    int what = turn();
    if (what == 1) return -1;
    if (what == 2 && size < 2) return -1;
    ssize_t done = real(fd, data, what == 2 ? size / 2 : size, offset);
    if (done > 0) note('W', path, offset, data, done);
    after();
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    REAL("pwrite", ssize_t, int, const void *, size_t, off_t)
    return written(real, fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    REAL("pwrite64", ssize_t, int, const void *, size_t, off_t)
    return written(real, fd, data, size, offset);
}

static ssize_t plain(int fd, const void *data, size_t size, off_t unused) {
    (void)unused;
    return syscall(SYS_write, fd, data, size);
}

ssize_t write(int fd, const void *data, size_t size) {
    return written(plain, fd, data, size, how == OFF ? 0 : lseek(fd, 0, SEEK_CUR));
}

static int simple(int (*real)(int), int fd) {
    char path[4096];
    if (!watched_fd(fd, path)) return real(fd);
    if (turn()) return -1;
    int done = real(fd);
    if (done == 0) note('S', path, 0, "", 0);
    after();
    return done;
}

int fsync(int fd) {
    REAL("fsync", int, int)
    return simple(real, fd);
}

int fdatasync(int fd) {
    REAL("fdatasync", int, int)
    return simple(real, fd);
}

static int cut(int (*real)(int, off_t), int fd, off_t size) {
    char path[4096];
    if (!watched_fd(fd, path)) return real(fd, size);
    if (turn()) return -1;
    int done = real(fd, size);
    if (done == 0) note('T', path, size, "", 0);
    after();
    return done;
}

int ftruncate(int fd, off_t size) {
    REAL("ftruncate", int, int, off_t)
    return cut(real, fd, size);
}

int ftruncate64(int fd, off_t size) {
    REAL("ftruncate64", int, int, off_t)
    return cut(real, fd, size);
}

int unlink(const char *path) {
    REAL("unlink", int, const char *)
    if (!watched(path)) return real(path);
    if (turn()) return -1;
    int done = real(path);
    if (done == 0) note('U', path, 0, "", 0);
    after();
    return done;
}

int rename(const char *path, const char *to) {
    REAL("rename", int, const char *, const char *)
    if (!watched(path)) return real(path, to);
    if (turn()) return -1;
    int done = real(path, to);
    if (done == 0) note('R', path, 0, to, strlen(to));
    after();
    return done;
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    if (!watched(path) || !(flags & O_CREAT)) return real(path, flags, mode);
    int made = access(path, F_OK) != 0;
    if (made && turn()) return -1;
    int fd = real(path, flags, mode);
    if (fd >= 0 && made) note('C', path, 0, "", 0);
    if (fd >= 0 && !made && (flags & O_TRUNC)) note('T', path, 0, "", 0);
    if (made) after();
    return fd;
}

#define OPEN(name)                                               \
    int name(const char *path, int flags, ...) {                 \
        va_list rest;                                            \
        va_start(rest, flags);                                   \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                            \
        REAL(#name, int, const char *, int, ...)                 \
        return opened(real, path, flags, mode);                  \
    }

OPEN(open)
OPEN(open64)
