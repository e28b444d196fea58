/* Counts the bytes that a process has allocated between `neaptide_begin` and `neaptide_peak`; preloaded, for Linux.

   Blocks that were there before do not count, and neither does their being freed. Sizes are those asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define SLOTS (1u << 20) /* of a table with open addressing: blocks alive at the same time */

static struct { void *at; size_t bytes; } table[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int on;
static size_t live, peak, used;
static char early[1 << 16]; /* what is asked for while the true functions are looked up */
static size_t early_used;

static void *(*true_malloc)(size_t);
static void (*true_free)(void *);
static void *(*true_calloc)(size_t, size_t);
static void *(*true_realloc)(void *, size_t);
static void *(*true_memalign)(size_t, size_t);
static void *(*true_mmap)(void *, size_t, int, int, int, off_t);
static int (*true_munmap)(void *, size_t);

static void find_true(void) {
    static int busy;
    if (true_mmap || busy) return;
    busy = 1;
    true_malloc = dlsym(RTLD_NEXT, "malloc");
    true_free = dlsym(RTLD_NEXT, "free");
    true_calloc = dlsym(RTLD_NEXT, "calloc");
    true_realloc = dlsym(RTLD_NEXT, "realloc");
    true_memalign = dlsym(RTLD_NEXT, "memalign");
    true_munmap = dlsym(RTLD_NEXT, "munmap");
    true_mmap = dlsym(RTLD_NEXT, "mmap");
    busy = 0;
}

static size_t slot_of(void *at) {
    size_t i = ((uintptr_t)at >> 4) * 0x9E3779B97F4A7C15u >> 44;
    while (table[i].at && table[i].at != at) i = (i + 1) % SLOTS;
    return i;
}

static void *begun(void *at, size_t bytes) {
    if (!on || !at) return at;
    pthread_mutex_lock(&lock);
    size_t i = slot_of(at);
    if (!table[i].at && used++ > SLOTS / 2) __builtin_trap();
    table[i].at = at;
    table[i].bytes = bytes;
    if ((live += bytes) > peak) peak = live;
    pthread_mutex_unlock(&lock);
    return at;
}

static void ended(void *at) {
    if (!on || !at) return;
    pthread_mutex_lock(&lock);
    size_t i = slot_of(at);
    if (table[i].at) { live -= table[i].bytes; table[i].bytes = 0; }
    pthread_mutex_unlock(&lock);
}

void neaptide_begin(void) {
    pthread_mutex_lock(&lock);
    memset(table, 0, sizeof table);
    live = peak = used = 0;
    on = 1;
    pthread_mutex_unlock(&lock);
}

size_t neaptide_peak(void) { on = 0; return peak; }

void *malloc(size_t n) {
    find_true();
    if (true_malloc) return begun(true_malloc(n), n);
    void *at = early + early_used;
    early_used += (n + 15) & ~(size_t)15;
    return early_used <= sizeof early ? at : NULL;
}
void *calloc(size_t k, size_t n) {
    find_true();
    return true_calloc ? begun(true_calloc(k, n), k * n) : malloc(k * n); /* `early` is zero */
}
void free(void *at) {
    if ((char *)at >= early && (char *)at < early + sizeof early) return;
    ended(at);
    true_free(at);
}
void *realloc(void *at, size_t n) {
    find_true();
    if ((char *)at >= early && (char *)at < early + sizeof early) {
        size_t left = (size_t)(early + sizeof early - (char *)at);
        void *made = malloc(n);
        return made ? memcpy(made, at, n < left ? n : left) : NULL;
    }
    ended(at);
    return begun(true_realloc(at, n), n);
}
void *memalign(size_t to, size_t n) { find_true(); return begun(true_memalign(to, n), n); }
void *aligned_alloc(size_t to, size_t n) { return memalign(to, n); }
int posix_memalign(void **out, size_t to, size_t n) { return (*out = memalign(to, n)) ? 0 : ENOMEM; }
void *mmap(void *at, size_t n, int prot, int flags, int file, off_t from) {
    find_true();
    void *made = true_mmap(at, n, prot, flags, file, from);
    if (made != MAP_FAILED && (flags & MAP_ANONYMOUS)) begun(made, n);
    return made;
}
void *mmap64(void *at, size_t n, int prot, int flags, int file, off_t from) {
    return mmap(at, n, prot, flags, file, from);
}
int munmap(void *at, size_t n) { find_true(); ended(at); return true_munmap(at, n); }
