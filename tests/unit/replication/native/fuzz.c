/* Damages batches at random and lets the library have them, each right before a page that may not be
 * touched: what reads past its end dies. Built with sanitizers where the compiler has them.
 *
 *   fuzz SECONDS SEED FILE...   each file holds batches
 */
#define _GNU_SOURCE
#include "merge.c"
#include "compare.c"
#include "frames.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, MOST = 1 << 16 };

static uint64_t state;
static uint32_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* Memory of just so many bytes, with nothing behind it. */
static uint8_t *fenced(void) {
    uint8_t *memory = mmap(0, MOST + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + MOST, PAGE, PROT_NONE)) abort();
    return memory + MOST;
}

static void damage(uint8_t *b, int64_t size) {
    static const uint32_t odd[] = {0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    static const int64_t fields[] = {0, 4, 8, 16, 21, 23, 27, 35, 57};
    for (uint32_t n = next_random() % 4; n; n--) {
        const int64_t at = next_random() % 2 ? fields[next_random() % 9] : next_random() % size;
        if (next_random() % 3) b[at % size] = (uint8_t)next_random();
        else if (at + 4 <= size) put32(b + at, odd[next_random() % 8]);
    }
}

/* Lets checksums be right, so that more than those is looked at. */
static void mend(uint8_t *b, int64_t size) {
    while (size >= HEADER) {
        const int64_t length = (int64_t)PREFIX + (int32_t)get32(b + LENGTH_AT);
        if (length < HEADER || length > size) return;
        put32(b + CRC_AT, crc32c(b + ATTRIBUTES_AT, length - ATTRIBUTES_AT));
        b += length;
        size -= length;
    }
}

static void check(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Frames of damaged batches, in memory of just the size that is asked for; then each beside itself. */
static int64_t frame_all(const uint8_t *in, int64_t size) {
    static const int64_t aborted[] = {7, 0, 9, 20}, start = 0, many = INT64_MAX / 2;
    Framing f = {.in = in, .size = size, .to = next_random() % 4 ? INT64_MAX : next_random() % 50,
                 .from = next_random() % 50, .aborted = aborted, .n_aborted = next_random() % 3,
                 .room = malloc((size_t)(4 * size + 1)), .offsets = malloc((size_t)(size / 7 + 1) * 8),
                 .ends = malloc((size_t)(size / 7 + 1) * 8), .least = 1 + next_random() % MOST,
                 .with_time = next_random() % 2, .opened = !(next_random() % 4)};
    int64_t outcome, framed = 0, before;
    do {
        before = f.at;
        outcome = srm_frames(&f);
        check(f.at <= size && f.n <= size / 7, "it framed more than there is");
        if (outcome == STRANGE) break;
        if (f.n) check(f.ends[f.n - 1] <= 4 * size, "frames are larger than their room");
        Side side = {.frames = f.room, .offsets = f.offsets, .ends = f.ends, .n = f.n, .done = 1};
        Pairs pairs = {.source = side, .target = side, .sources = &start, .targets = &start,
                       .counts = &many, .n_runs = 1};
        int all = 1;
        for (int64_t i = 0; i < f.n; i++) all = all && f.offsets[i] < many;
        check(!all || srm_pairs(&pairs) == ENDED, "records differ from themselves");
        framed += f.n;
        if (outcome == COMPRESSED) f.at += PREFIX + (int64_t)(int32_t)get32(in + f.at + LENGTH_AT);
    } while (f.at > before);
    check(srm_behind(in, size) >= -1 || size >= HEADER, "an offset behind nothing");
    free(f.room);
    free(f.offsets);
    free(f.ends);
    return framed;
}

int main(int count, char **arguments) {
    static uint8_t seeds[64][MOST];
    static int64_t sizes[64];
    static Outgoing outs[64];
    static Stretch stretches[256];
    int n = 0;
    for (int i = 3; i < count && n < 64; i++) {
        FILE *file = fopen(arguments[i], "rb");
        if (!file) return 2;
        sizes[n] = (int64_t)fread(seeds[n], 1, MOST, file);
        fclose(file);
        if (sizes[n]) n++;
    }
    if (!n) return 2;
    state = strtoull(arguments[2], 0, 10) * 0x9E3779B97F4A7C15u + 1;
    srm_begin(1);
    uint8_t *in_end = fenced(), *room_end = fenced(), *other_end = fenced();
    const time_t until = time(0) + atoi(arguments[1]);
    uint64_t cases = 0, made = 0, framed = 0;
    for (; cases % 1024 || time(0) < until; cases++) {
        const int seed = (int)(next_random() % (uint32_t)n);
        const int64_t size = next_random() % 4 ? sizes[seed] : next_random() % (sizes[seed] + 1);
        uint8_t *in = in_end - size;
        memcpy(in, seeds[seed], (size_t)size);
        if (size) damage(in, size);
        if (next_random() % 8) mend(in, size);
        framed += (uint64_t)frame_all(in, size);
        const int64_t room_size = next_random() % MOST;
        Job job = {.in = in, .size = size, .wanted = next_random() % 50,
                   .limit = next_random() % 3 ? next_random() % MOST : 0, .largest = next_random() % MOST,
                   .room = room_end - room_size, .room_size = room_size,
                   .outs = outs, .most_outs = 3 + next_random() % 61,
                   .stretches = stretches, .most_stretches = 2 + next_random() % 254};
        const int64_t end = srm_merge(&job);
        check(end >= 0 && end <= size, "it came further than its input");
        check(job.n_outs <= job.most_outs && job.n_stretches <= job.most_stretches, "too many results");
        int64_t stretch = 0;
        for (int64_t i = 0; i < job.n_outs; i++) {
            Outgoing *out = &outs[i];
            const uint8_t *b = (out->kind == MADE ? job.room : in) + out->at;
            check(out->at >= 0 && out->size > 0 &&
                  out->at + out->size <= (out->kind == MADE ? room_size : size), "a result lies outside");
            int64_t records = 0;
            for (int32_t k = 0; k < out->stretches; k++) records += stretches[stretch++].count;
            check(records == out->count, "stretches and records differ");
            if (out->kind != MADE) continue;
            made++;
            check(get32(b + CRC_AT) == crc32c(b + ATTRIBUTES_AT, out->size - ATTRIBUTES_AT), "its checksum");
            Records from = records_of(b, out->size);
            Record record;
            int more;
            int64_t seen = 0;
            while ((more = next_record(&from, &record)) == 1) seen++;
            check(!more && seen == out->count, "a batch that was made is not well made");
            srm_rewrite(job.room + out->at, out->size, 1, 2, 3);
        }
        check(stretch == job.n_stretches, "stretches of nothing");
        const int other = (int)(next_random() % (uint32_t)n);
        uint8_t *ours = other_end - sizes[other];
        memcpy(ours, seeds[other], (size_t)sizes[other]);
        if (next_random() % 2) damage(ours, sizes[other]);
        if (size >= HEADER && sizes[other] >= HEADER) {
            Compared compared = {ours, sizes[other], 0, 0, (int32_t)(next_random() % 2)};
            for (int k = 0; k < 3 && srm_compare(&compared, in, size, stretches, 256) >= 0; k++)
                check(compared.at <= compared.size, "it compared past the end");
        }
    }
    check(framed > 0, "nothing was framed");
    printf("%llu cases, %llu batches made\n", (unsigned long long)cases, (unsigned long long)made);
    return 0;
}
