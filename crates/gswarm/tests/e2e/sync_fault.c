/* A disk whose syncs fail or take long, for one process: preloaded in front of the C library.
 *
 * SYNC_FAULT_UNDER is the directory it is about, SYNC_FAULT_CONTROL another one. Files in the
 * latter are orders: `slow` makes each sync take two seconds, `fail` makes each fail, `fail_once`
 * is consumed by the one that fails. What was not synced by then is dropped, as a kernel may do.
 * Each fault appends a byte to `injected`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 4096

/* By file descriptor: which file, and how much of it is safe. */
static struct {
    ino_t inode;
    off_t bytes;
} safe[FILES_MAX];

static const char *order(char *path, size_t size, const char *name) {
    const char *control = getenv("SYNC_FAULT_CONTROL");
    snprintf(path, size, "%s/%s", control ? control : "/nonexistent", name);
    return path;
}

static int is_ours(int fd) {
    char link[64], path[4096];
    const char *under = getenv("SYNC_FAULT_UNDER");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || !under || fd >= FILES_MAX) return 0;
    path[length] = 0;
    return strncmp(path, under, strlen(under)) == 0;
}

static void injected(void) {
    char path[4096];
    int log = open(order(path, sizeof path, "injected"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (log >= 0) {
        if (write(log, "x", 1) != 1) abort();
        close(log);
    }
}

static void drop_the_rest(int fd) {
    struct stat file;
    if (fstat(fd, &file) || file.st_ino != safe[fd].inode) return;
    if (file.st_size > safe[fd].bytes && ftruncate(fd, safe[fd].bytes)) abort();
}

int fdatasync(int fd) {
    char path[4096];
    struct stat file;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!is_ours(fd)) return real(fd);
    if (access(order(path, sizeof path, "slow"), F_OK) == 0) {
        struct timespec two_seconds = {2, 0};
        injected();
        nanosleep(&two_seconds, NULL);
    }
    if (unlink(order(path, sizeof path, "fail_once")) == 0
        || access(order(path, sizeof path, "fail"), F_OK) == 0) {
        injected();
        drop_the_rest(fd);
        errno = EIO;
        return -1;
    }
    int result = real(fd);
    if (result == 0 && fstat(fd, &file) == 0) {
        safe[fd].inode = file.st_ino;
        safe[fd].bytes = file.st_size;
    }
    return result;
}
