/* A fuzzing engine for any compiler: coverage-guided mutation of a corpus that the target itself brings.
 *
 *   TARGET [--seed N] [--runs N] [--seconds N] [--longest N] [FILE...]     FILE: only run these inputs
 *   TARGET --write-seeds FOLDER                                           for libFuzzer: its corpus, and words.dict
 *
 * The same seed and number of runs give the same inputs. What fails is left in ./crash-TARGET. Every input must leave the number of open
 * descriptors and the bytes allocated as they were.
 *
 * Coverage: the files under test are compiled with -fsanitize-coverage=trace-pc, this one is not. An input that reaches a pair of places no other has
 * reached, or reaches one a new order of magnitude of times, joins the corpus.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define CORPUS_MAX 20000u
#define MAP_SIZE (1u << 14)
#define RUN_SECONDS 20 /* a single input that takes longer hangs */

struct input { uint8_t *data; size_t size; };

static struct input corpus[CORPUS_MAX];
static size_t corpus_size;
static uint8_t hits[MAP_SIZE], seen[MAP_SIZE];
static uintptr_t last_place;
static uint64_t random_state = 1;
static size_t longest = 4096;
static uint8_t *current;
static size_t current_size;
static char crash_name[128] = "crash";

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
extern void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));
extern void __sanitizer_symbolize_pc(void *, const char *, char *, size_t) __attribute__((weak));
void __sanitizer_cov_trace_pc(void);
const char *__asan_default_options(void);

/* Leaks are counted after every input, below. */
const char *__asan_default_options(void) { return "detect_leaks=0:handle_abort=0:detect_stack_use_after_return=0"; }

void __sanitizer_cov_trace_pc(void) {
    const uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uint8_t *hit = &hits[(place ^ last_place) % MAP_SIZE];
    if (*hit < 255) ++*hit;
    last_place = place >> 1;
}

static uint64_t random_number(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(size_t n) { return n ? (size_t)(random_number() % n) : 0; }

static void save_current(void) {
    const int fd = open(crash_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return;
    if (write(fd, current, current_size) == (ssize_t)current_size) dprintf(2, "fuzz: the input is in %s (%zu bytes)\n", crash_name, current_size);
    close(fd);
}

static void fatal(int number) {
    dprintf(2, "fuzz: %s\n", number == SIGALRM ? "this input hangs" : "aborted");
    save_current();
    _exit(70);
}

/* ---- mutation ---- */

static size_t insert(uint8_t *to, size_t size, size_t at, const void *from, size_t n) {
    if (size + n > longest) return size;
    memmove(to + at + n, to + at, size - at);
    memcpy(to + at, from, n);
    return size + n;
}

static size_t overwrite(uint8_t *to, size_t size, size_t at, const void *from, size_t n) {
    if (n > size - at) n = size - at;
    memcpy(to + at, from, n);
    return size;
}

static size_t mutate_once(uint8_t *to, size_t size) {
    static const uint64_t numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 20, 64, 127, 128, 255, 256, 4095, 4096, 0x7fff, 0xffff, 0x10000, 0x7fffffff,
                                       0x80000000u, 0xfffffffeu, 0xffffffffu, 0x100000000u, 0x7fffffffffffffffu, 0xffffffffffffffffu};
    const size_t at = below(size + 1), rest = size - at;
    uint8_t scratch[64];
    switch (below(12)) {
    case 0: if (rest) to[at] ^= (uint8_t)(1u << below(8)); return size;
    case 1: if (rest) to[at] = (uint8_t)random_number(); return size;
    case 2: if (rest) to[at] = (uint8_t)(to[at] + below(9) - 4); return size;
    case 3: { /* a number, at any of the widths */
        const uint64_t number = numbers[below(sizeof numbers / sizeof *numbers)];
        return overwrite(to, size, at, &number, (size_t)1 << below(4));
    }
    case 4: {
        const uint64_t number = below(2) ? below(size + 8) : numbers[below(sizeof numbers / sizeof *numbers)];
        return insert(to, size, at, &number, (size_t)1 << below(4));
    }
    case 5: { /* leave something out */
        const size_t n = rest ? 1 + below(rest < 64 ? rest : 64) : 0;
        memmove(to + at, to + at + n, rest - n);
        return size - n;
    }
    case 6: { /* say something twice */
        const size_t n = below((rest < sizeof scratch ? rest : sizeof scratch) + 1);
        memcpy(scratch, to + at, n);
        return insert(to, size, below(size + 1), scratch, n);
    }
    case 7: case 8: {
        size_t count = 0;
        while (fuzz_words[count]) count++;
        if (!count) return size;
        const char *word = fuzz_words[below(count)];
        return below(2) ? insert(to, size, at, word, strlen(word)) : overwrite(to, size, at, word, strlen(word));
    }
    case 9: { /* the beginning of this one and the end of another */
        const struct input *other = &corpus[below(corpus_size)];
        const size_t from = below(other->size + 1), n = other->size - from;
        if (at + n > longest) return size;
        memcpy(to + at, other->data + from, n);
        return at + n;
    }
    case 10: {
        const size_t n = 1 + below(16);
        memset(scratch, (int)random_number(), n);
        return insert(to, size, at, scratch, n);
    }
    default: return at > 0 && below(8) == 0 ? at : size; /* cut */
    }
}

/* ---- running ---- */

static int lowest_free_descriptor(void) {
    const int fd = dup(2);
    close(fd);
    return fd;
}

static size_t allocated(void) { return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0; }

static void run_current(void) {
    /* What is set up at its first use is not a leak: that grows once only. */
    for (int attempt = 0; attempt < 3; attempt++) {
        memset(hits, 0, sizeof hits);
        last_place = 0;
        const int descriptor = lowest_free_descriptor();
        const size_t before = allocated();
        alarm(RUN_SECONDS);
        LLVMFuzzerTestOneInput(current, current_size);
        alarm(0);
        FUZZ_CHECK(lowest_free_descriptor() == descriptor, "descriptor %d was left open or closed", descriptor);
        if (allocated() <= before) return;
    }
    FUZZ_FAIL("memory is left allocated by every run of this input");
}

static int is_new(void) {
    int found = 0;
    for (size_t i = 0; i < MAP_SIZE; i++) {
        uint64_t eight;
        if (i % 8 == 0 && (memcpy(&eight, hits + i, 8), eight == 0)) { i += 7; continue; }
        if (!hits[i]) continue;
        const uint8_t magnitude = (uint8_t)(1u << (31 - __builtin_clz(hits[i])));
        if (!(seen[i] & magnitude)) seen[i] |= magnitude, found = 1;
    }
    return found;
}

static void keep_current(void) {
    if (corpus_size == CORPUS_MAX) return;
    uint8_t *data = malloc(current_size ? current_size : 1);
    if (!data) abort();
    memcpy(data, current, current_size);
    corpus[corpus_size++] = (struct input){data, current_size};
}

static void set_current(const void *data, size_t size) {
    memcpy(current, data, size);
    current_size = size;
}

/* ---- files ---- */

static void write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) FUZZ_FAIL("cannot write %s", path);
}

static int write_seeds(const char *folder) {
    char name[32], dictionary[1 << 16];
    size_t n;
    for (unsigned i = 0; (n = fuzz_seed(i, current, longest)) > 0; i++) {
        snprintf(name, sizeof name, "seed-%u", i);
        write_file(folder, name, current, n);
    }
    n = 0;
    for (size_t i = 0; fuzz_words[i]; i++) {
        n += (size_t)snprintf(dictionary + n, sizeof dictionary - n, "\"");
        for (const char *c = fuzz_words[i]; *c; c++) n += (size_t)snprintf(dictionary + n, sizeof dictionary - n, "\\x%02x", (unsigned char)*c);
        n += (size_t)snprintf(dictionary + n, sizeof dictionary - n, "\"\n");
    }
    write_file(folder, "words.dict", dictionary, n);
    return 0;
}

static int run_file(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) FUZZ_FAIL("cannot read %s", path);
    current_size = fread(current, 1, longest, file);
    fclose(file);
    run_current();
    return 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fuzz(uint64_t runs, double seconds) {
    const double end = now() + seconds;
    uint64_t done = 0;
    size_t n;
    for (unsigned i = 0; (n = fuzz_seed(i, current, longest)) > 0; i++) {
        current_size = n;
        run_current();
        is_new();
        keep_current();
        done++;
    }
    const size_t seeds = corpus_size;
    if (!seeds) FUZZ_FAIL("the target has no seeds");
    for (; (!runs || done < runs) && (seconds <= 0 || now() < end); done++) {
        const struct input *parent = &corpus[below(2) ? below(corpus_size) : corpus_size - 1 - below(corpus_size < 32 ? corpus_size : 32)];
        set_current(parent->data, parent->size);
        for (size_t times = (size_t)1 << below(5); times > 0; times--) current_size = mutate_once(current, current_size);
        run_current();
        if (is_new()) keep_current();
    }
    size_t places = 0;
    for (size_t i = 0; i < MAP_SIZE; i++) places += seen[i] != 0;
    printf("%llu runs, %zu seeds, %zu inputs kept, %zu places reached\n", (unsigned long long)done, seeds, corpus_size, places);
}

int main(int argc, char **argv) {
    uint64_t runs = 0;
    double seconds = 0;
    const char *seeds_folder = NULL, *name = strrchr(argv[0], '/');
    int at = 1;
    snprintf(crash_name, sizeof crash_name, "crash-%s", name ? name + 1 : argv[0]);
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        const char *option = argv[at] + 2, *value = argv[at + 1];
        if (strcmp(option, "seed") == 0) random_state = strtoull(value, NULL, 0);
        else if (strcmp(option, "runs") == 0) runs = strtoull(value, NULL, 0);
        else if (strcmp(option, "seconds") == 0) seconds = strtod(value, NULL);
        else if (strcmp(option, "longest") == 0) longest = strtoull(value, NULL, 0);
        else if (strcmp(option, "write-seeds") == 0) seeds_folder = value;
        else FUZZ_FAIL("unknown option --%s", option);
    }
    current = malloc(longest + 1);
    if (!current) FUZZ_FAIL("no memory for inputs of %zu bytes", longest);
    if (seeds_folder) return write_seeds(seeds_folder);
    FUZZ_CHECK(runs || seconds > 0 || at < argc, "say --runs, --seconds or the inputs");
    char place[256];
    /* The debug information is read now: a target may go where the file of this program is out of reach. */
    if (__sanitizer_symbolize_pc) __sanitizer_symbolize_pc(__builtin_return_address(0), "%p %F %L", place, sizeof place);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_current);
    signal(SIGABRT, fatal);
    signal(SIGALRM, fatal);
    LLVMFuzzerInitialize(&argc, &argv);
    if (at < argc) {
        for (; at < argc; at++) run_file(argv[at]);
        return 0;
    }
    fuzz(runs, seconds);
    return 0;
}
