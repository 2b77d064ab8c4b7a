/* The verification's comparison: the records of fetched batches as frames, and pairs of equal ones.
 *
 * A frame is the content of a record as srm.domain.verification.comparison.frame writes it: time, key, value and
 * headers, each with its length. This file decides which records count, from the bytes and the
 * broker's list of aborted transactions. It does not use the copier's code, which is being verified.
 * A malformed batch stops it, and an ordinary consumer reads the range instead.
 */
#include "batch.h"

uint32_t srm_crc32c(const uint8_t *p, int64_t n); /* merge.c */

enum { TRANSACTIONAL = 0x10, MOST_OPEN = 64 };
enum { WALKED = 0, COMPRESSED = 1, STRANGE = -1 };

typedef struct {
    const uint8_t *in; /* batches of one fetch answer, or one decompressed batch */
    int64_t size;
    int64_t at;   /* byte of the next batch */
    int64_t next; /* offset after the last batch read */
    int64_t from, to; /* range of wanted offsets, end excluded */
    const int64_t *aborted; /* producer id and first offset of aborted transactions, in offset order */
    int64_t n_aborted, i_aborted;
    int64_t open[MOST_OPEN]; /* producers of those already open */
    int64_t n_open;
    uint8_t *room;    /* four times the size */
    int64_t *offsets; /* of each record, and the end of its frame: a seventh of the size */
    int64_t *ends;
    int64_t n;         /* framed records */
    int64_t least;     /* bytes after which to stop */
    int32_t epoch;     /* leader epoch of the last batch */
    int32_t with_time; /* times are part of the content */
    int32_t opened;    /* its checksum was already verified */
} Framing;

static uint8_t *write32(uint8_t *to, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(to, &v, 4);
    return to + 4;
}

/* A length and its bytes, -1 for null; returns 0 if the bytes are missing. */
static const uint8_t *part(const uint8_t *p, const uint8_t *end, uint8_t **to) {
    int64_t length;
    if (!(p = varint(p, end, 5, &length)) || length < -1 || length > end - p) return 0;
    *to = write32(*to, (uint32_t)length);
    if (length <= 0) return p;
    memcpy(*to, p, (size_t)length);
    *to += length;
    return p + length;
}

/* Returns the end of the frame, 0 if the record is malformed. */
static uint8_t *frame(const Record *record, uint8_t *to, int with_time) {
    const uint8_t *p = record->rest, *end = p + record->rest_size;
    const uint64_t time = with_time ? __builtin_bswap64((uint64_t)record->time) : 0;
    int64_t headers;
    memcpy(to, &time, 8);
    to += 8;
    if (!(p = part(p, end, &to)) || !(p = part(p, end, &to))) return 0;
    if (!(p = varint(p, end, 5, &headers)) || headers < 0 || headers > end - p) return 0;
    to = write32(to, (uint32_t)headers);
    for (; headers; headers--) {
        if (p == end || *p & 1) return 0; /* a header name is never null, so its length is not negative */
        if (!(p = part(p, end, &to)) || !(p = part(p, end, &to))) return 0;
    }
    return p == end ? to : 0;
}

/* 1: an abort marker, 0: another control record, -1: malformed. */
static int aborts(const uint8_t *b, int64_t size) {
    Records records = records_of(b, size);
    Record record;
    int64_t length;
    if (next_record(&records, &record) != 1) return -1;
    const uint8_t *end = record.rest + record.rest_size, *p = varint(record.rest, end, 5, &length);
    if (!p || length < 4 || length > end - p) return -1;
    return !get16(p + 2);
}

/* 1: the records of a batch do not count (aborted or markers), 0: they do, -1: unknown. */
static int never_happened(Framing *f, const uint8_t *b, int64_t size, int64_t last) {
    const int attributes = get16(b + ATTRIBUTES_AT);
    const int64_t producer = (int64_t)get64(b + PRODUCER_AT);
    int64_t i;
    for (; f->i_aborted < f->n_aborted && f->aborted[2 * f->i_aborted + 1] <= last; f->i_aborted++) {
        if (f->n_open == MOST_OPEN) return -1;
        f->open[f->n_open++] = f->aborted[2 * f->i_aborted];
    }
    for (i = 0; i < f->n_open && f->open[i] != producer; i++) {}
    if (attributes & CONTROL) {
        /* A marker emptied by compaction has no kind. */
        const int kind = get32(b + COUNT_AT) ? aborts(b, size) : 0;
        if (kind < 0) return -1;
        if (kind && i < f->n_open) f->open[i] = f->open[--f->n_open];
        return 1;
    }
    return i < f->n_open && attributes & TRANSACTIONAL;
}

/* Frames the wanted records of a batch; 0 if it is malformed. */
static int frame_batch(Framing *f, const uint8_t *b, int64_t size, uint8_t **to) {
    Records records = records_of(b, size);
    Record record;
    int more;
    while ((more = next_record(&records, &record)) == 1) {
        if (record.offset < f->from || record.offset >= f->to) continue;
        if (!(*to = frame(&record, *to, f->with_time))) return 0;
        f->offsets[f->n] = record.offset;
        f->ends[f->n++] = *to - f->room;
    }
    return !more;
}

/* Frames batches until there are `least` bytes of frames, a compressed batch is met (it is `at`, to
 * be passed decompressed), or the range or the input ends. STRANGE: discard all of it. */
int64_t srm_frames(Framing *f) {
    uint8_t *to = f->room;
    f->n = 0;
    while (f->size - f->at >= HEADER && f->next < f->to && to - f->room < f->least) {
        const uint8_t *b = f->in + f->at;
        const int64_t size = PREFIX + (int64_t)(int32_t)get32(b + LENGTH_AT);
        const int64_t base = (int64_t)get64(b), delta = (int32_t)get32(b + DELTA_AT);
        if (b[MAGIC_AT] != 2 || size < HEADER || base < 0 || delta < 0 || base > INT64_MAX - UINT32_MAX)
            return STRANGE;
        if (size > f->size - f->at) break;
        const int64_t last = base + delta;
        if (last < f->next || (f->at && base < f->next)) return STRANGE;
        if (!f->opened && srm_crc32c(b + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != get32(b + CRC_AT))
            return STRANGE;
        const int left_out = never_happened(f, b, size, last);
        if (left_out < 0) return STRANGE;
        if (!left_out && get32(b + COUNT_AT) && base < f->to) {
            if (get16(b + ATTRIBUTES_AT) & CODEC) return COMPRESSED;
            if (!frame_batch(f, b, size, &to)) return STRANGE;
        }
        f->epoch = (int32_t)get32(b + EPOCH_AT);
        f->next = last + 1;
        f->at += size;
    }
    return WALKED;
}

/* The offset after the last whole batch, where the next fetch starts; -1 without one. */
int64_t srm_behind(const uint8_t *in, int64_t size) {
    int64_t behind = -1;
    while (size >= HEADER) {
        const int64_t length = PREFIX + (int64_t)(int32_t)get32(in + LENGTH_AT);
        if (length < HEADER || length > size) break;
        behind = (int64_t)(get64(in) + get32(in + DELTA_AT) + 1);
        in += length;
        size -= length;
    }
    return behind;
}

/* Framed records of one side; those from `at` up to `n` are not compared yet. */
typedef struct {
    const uint8_t *frames;
    const int64_t *offsets, *ends;
    int64_t at, n;
    int64_t run;  /* the first run that ends after the next record */
    int32_t done; /* nothing follows these */
} Side;

typedef struct {
    Side source, target;
    const int64_t *sources, *targets, *counts; /* the runs */
    int64_t n_runs;
    int64_t first;     /* index of the first pair found, in the source's records */
    int64_t one_sided; /* total of records that only one side has */
    int32_t compacted; /* one-sided records are then no difference */
} Pairs;

enum { AGAIN = 0, ENDED = 1, UNEQUAL = 2 };

static const int64_t NOWHERE = -1;

/* Offset of a record of one side on the other. */
static int64_t place(Side *side, const int64_t *starts, const int64_t *others, const Pairs *pairs) {
    const int64_t offset = side->offsets[side->at];
    while (side->run < pairs->n_runs && starts[side->run] + pairs->counts[side->run] <= offset)
        side->run++;
    if (side->run == pairs->n_runs || starts[side->run] > offset) return NOWHERE;
    return others[side->run] + offset - starts[side->run];
}

static int equal(const Side *a, const Side *b) {
    const int64_t mine = a->at ? a->ends[a->at - 1] : 0, others = b->at ? b->ends[b->at - 1] : 0;
    const int64_t size = a->ends[a->at] - mine;
    return size == b->ends[b->at] - others && !memcmp(a->frames + mine, b->frames + others, (size_t)size);
}

/* Finds equal records at the offsets given by the runs. AGAIN: `first` up to source.at are such
 * pairs, and more may follow. ENDED: those were the last ones. UNEQUAL: the next record of one side
 * differs from the other side's record there. */
int64_t srm_pairs(Pairs *pairs) {
    Side *source = &pairs->source, *target = &pairs->target;
    pairs->first = source->at;
    for (;;) {
        const int ours = source->at < source->n, theirs = target->at < target->n;
        if ((!ours && !source->done) || (!theirs && !target->done)) return AGAIN;
        if (!ours && !theirs) return ENDED;
        const int64_t copy = ours ? place(source, pairs->sources, pairs->targets, pairs) : NOWHERE;
        const int64_t original = theirs ? place(target, pairs->targets, pairs->sources, pairs) : NOWHERE;
        if (theirs && original == NOWHERE) return UNEQUAL; /* not written by srm */
        if (ours && theirs && copy == target->offsets[target->at]) {
            if (!equal(source, target)) return UNEQUAL;
            source->at++;
            target->at++;
            continue;
        }
        const int only_ours = ours && (copy == NOWHERE || !theirs || copy < target->offsets[target->at]);
        if (!pairs->compacted || (only_ours && copy == NOWHERE)) return UNEQUAL;
        if (pairs->first < source->at) return AGAIN; /* pairs are returned as one range */
        pairs->one_sided++;
        if (only_ours) pairs->first = ++source->at;
        else target->at++;
    }
}
