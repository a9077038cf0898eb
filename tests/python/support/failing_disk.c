/* A disk that fails for a while: fsync, fdatasync, msync and pwrite return EIO, and mlock ENOMEM.

   The file $FAILING_DISK, while it exists, names the failing calls, a part of the paths that fail, and the number of bytes that
   pwrite still writes before. If that is below 0, pwrite, fsync and fdatasync do not fail: they create $FAILING_DISK.waits, and
   wait until $FAILING_DISK is gone. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long written;

/* Returns whether a call on a file fails, -1 for no file; `left` gets the bytes that are still written. */
static int fails(const char *call, int fd, long *left) {
    char calls[64], part[256], link[64], path[PATH_MAX];
    const char *control = getenv("FAILING_DISK");
    FILE *file = control ? fopen(control, "r") : NULL;
    if (!file) {
        written = 0;
        return 0;
    }
    int read = fscanf(file, "%63s %255s %ld", calls, part, left);
    fclose(file);
    if (read != 3 || !strstr(calls, call)) return 0;
    if (fd < 0) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 2);
    if (length < 0) return 0;
    /* A part that ends with $ is the end of the path. */
    path[length] = '$';
    path[length + 1] = 0;
    return strstr(path, part) != NULL;
}

/* Waits if the call must wait, and returns whether it fails. */
static int fails_or_waits(const char *call, int fd, long *left) {
    char waits[PATH_MAX];
    int failing = fails(call, fd, left);
    if (!failing || *left >= 0) return failing;
    snprintf(waits, sizeof waits, "%s.waits", getenv("FAILING_DISK"));
    FILE *file = fopen(waits, "w");
    if (file) fclose(file);
    while (fails(call, fd, left)) usleep(1000);
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    long left;
    if (fails_or_waits("pwrite", fd, &left)) {
        left -= written;
        if (left <= 0) {
            errno = EIO;
            return -1;
        }
        if ((size_t)left < count) count = left;
        written += count;
    }
    return real(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite64(fd, bytes, count, at);
}

static int sync_or_fail(const char *call, int fd) {
    long left;
    if (fails_or_waits(call, fd, &left)) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = dlsym(RTLD_NEXT, call);
    return real(fd);
}

int fsync(int fd) {
    return sync_or_fail("fsync", fd);
}

int fdatasync(int fd) {
    return sync_or_fail("fdatasync", fd);
}

int mlock(const void *address, size_t length) {
    long left;
    if (fails("mlock", -1, &left)) {
        errno = ENOMEM;
        return -1;
    }
    int (*real)(const void *, size_t) = dlsym(RTLD_NEXT, "mlock");
    return real(address, length);
}

int msync(void *address, size_t length, int flags) {
    long left;
    if (fails("msync", -1, &left)) {
        errno = EIO;
        return -1;
    }
    int (*real)(void *, size_t, int) = dlsym(RTLD_NEXT, "msync");
    return real(address, length, flags);
}
