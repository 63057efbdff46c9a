/* A preloaded library that flips one bit in what one call reads from a file or writes to one, as a disk that lies once.

   FLIP_FOLDER  only files in it count
   FLIP_AT      which call that reads or writes any of them, from 1 on; 0 for none
   FLIP_BIT     any number: which bit of what was transferred
   FLIP_LOG     at the flip "read" or "write", the offset in the file, the length of the call, the byte of the bit and the path; at the end "count"
                and how many calls there were

   What is written is copied: the memory of the program stays as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

typedef ssize_t (*call)(int, ...);

static call real(const char *name)
{
    call found;
    *(void **)&found = dlsym(RTLD_NEXT, name);
    return found;
}

static void say(const char *format, const char *what, long offset, size_t length, unsigned long byte, const char *path)
{
    const char *log = getenv("FLIP_LOG");
    FILE *file = log ? fopen(log, "a") : NULL;
    if (!file) return;
    fprintf(file, format, what, offset, length, byte, path);
    fclose(file);
}

/* True if a descriptor is a file that counts, and then its path. */
static int counts(int descriptor, char *path)
{
    const char *folder = getenv("FLIP_FOLDER");
    struct stat known;
    char link[64];
    if (!folder || descriptor < 3 || fstat(descriptor, &known) || !S_ISREG(known.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder));
}

/* The bit to be flipped in the call that is made now, or -1. */
static long bit_of(int descriptor, size_t length, long offset, const char *what)
{
    char path[PATH_MAX];
    if (!length || !counts(descriptor, path)) return -1;
    long number = atomic_fetch_add(&calls, 1) + 1;
    const char *at = getenv("FLIP_AT"), *bit = getenv("FLIP_BIT");
    if (!at || !bit || number != atol(at)) return -1;
    unsigned long flipped = strtoul(bit, NULL, 10) % (8 * length);
    if (offset < 0) offset = lseek(descriptor, 0, SEEK_CUR);
    say("%s %ld %zu %lu %s\n", what, offset, length, flipped / 8, path);
    return (long)flipped;
}

static ssize_t flipped_read(ssize_t done, int descriptor, void *into, long offset)
{
    if (done <= 0) return done;
    /* Where the file is by now is behind what was read. */
    long bit = bit_of(descriptor, (size_t)done, offset, "read");
    if (bit >= 0) ((unsigned char *)into)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    return done;
}

static void *flipped_copy(int descriptor, const void *from, size_t length, long offset)
{
    long bit = bit_of(descriptor, length, offset, "write");
    unsigned char *copy = bit < 0 ? NULL : malloc(length);
    if (!copy) return NULL;
    memcpy(copy, from, length);
    copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
    return copy;
}

#define READ_AT(name) \
    ssize_t name(int descriptor, void *into, size_t length, off_t offset) \
    { \
        return flipped_read(real(#name)(descriptor, into, length, offset), descriptor, into, (long)offset); \
    }
#define WRITE_AT(name) \
    ssize_t name(int descriptor, const void *from, size_t length, off_t offset) \
    { \
        void *copy = flipped_copy(descriptor, from, length, (long)offset); \
        ssize_t done = real(#name)(descriptor, copy ? copy : from, length, offset); \
        free(copy); \
        return done; \
    }

READ_AT(pread)
READ_AT(pread64)
WRITE_AT(pwrite)
WRITE_AT(pwrite64)

ssize_t read(int descriptor, void *into, size_t length)
{
    return flipped_read(real("read")(descriptor, into, length), descriptor, into, -1);
}

ssize_t write(int descriptor, const void *from, size_t length)
{
    void *copy = flipped_copy(descriptor, from, length, -1);
    ssize_t done = real("write")(descriptor, copy ? copy : from, length);
    free(copy);
    return done;
}

__attribute__((destructor)) static void end(void)
{
    if (getenv("FLIP_FOLDER")) say("%s %ld %zu %lu %s\n", "count", atomic_load(&calls), 0, 0, "-");
}
