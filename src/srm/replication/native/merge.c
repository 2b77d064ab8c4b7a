/* Merging batches, closing their holes, and making them ours.
 *
 * The fallback in Python (batches/to_send.py) does the same record by record, and gets all
 * malformed batches.
 */
#include "batch.h"
#include "crc32c.h"

/* Treatment of a stretch of the input. DROPPED: nothing is sent. PASSED: it is sent unchanged.
 * MADE: the batch made of it, in the room, is sent. PLAIN: for the plain path. DISORDER: its offset,
 * in `next`, is before the end of the previous batch; nothing after it is trusted. */
enum { DROPPED = 0, PASSED = 1, MADE = 2, PLAIN = 3, DISORDER = 4 };

typedef struct {
    int64_t at, size; /* bytes of the input, MADE: of the room */
    int64_t next;     /* source offset after it */
    int64_t max_time;
    int32_t kind, count, epoch, stretches;
} Outgoing;

typedef struct {
    const uint8_t *in;
    int64_t size;
    int64_t wanted;  /* first source offset still to copy */
    int64_t limit;   /* bytes up to which batches are merged, 0: no merging */
    int64_t largest; /* larger batches, in bytes, are not merged */
    uint8_t *room;
    int64_t room_size;
    Outgoing *outs;
    int64_t most_outs;
    Stretch *stretches;
    int64_t most_stretches;
    int64_t n_outs, n_stretches;
    int32_t unchecked; /* checksums are known to be correct */
    int32_t more;      /* set if it ended because outputs or room were full */
} Job;

/* The batch being made of the last batches, in the room from `begin` to `at`; `records` is the
 * checksum's register after its records. `behind`: the offset after the previous batch, sent or not.
 * `alone`: the one batch at `in_at` is sent unchanged unless another one follows. It is not parsed
 * yet. */
typedef struct {
    int64_t begin, at, base_time, max_time, next, behind, in_at, in_size, first_stretch;
    int32_t batches, count, epoch, append_time, whole, alone;
    uint32_t records;
} Making;

static void put16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static void put32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}
static void put64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, 8);
}

static uint64_t zigzag(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }

static int width(uint64_t v) {
    int n = 1;
    while (v >>= 7) n++;
    return n;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v) {
    for (; v > 127; v >>= 7) *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

/* ----- making batches */

static void seal(uint8_t *b, int64_t size) {
    put32(b + LENGTH_AT, (uint32_t)(size - PREFIX));
    put32(b + CRC_AT, crc32c(b + ATTRIBUTES_AT, size - ATTRIBUTES_AT));
}

/* The same if the register after the records is known, with the initial value 0. */
static void seal_header(uint8_t *b, int64_t size, uint32_t records) {
    const uint32_t header = crc_bytes(~0u, b + ATTRIBUTES_AT, HEADER - ATTRIBUTES_AT);
    put32(b + LENGTH_AT, (uint32_t)(size - PREFIX));
    put32(b + CRC_AT, ~(crc_behind_zeros(header, size - HEADER) ^ records));
}

static int is_valid(const Job *job, const uint8_t *b, int64_t size) {
    return job->unchecked || get32(b + CRC_AT) == crc32c(b + ATTRIBUTES_AT, size - ATTRIBUTES_AT);
}

static Outgoing *emit(Job *job, int32_t kind, int64_t at, int64_t size, int64_t next, int32_t epoch) {
    Outgoing *out = &job->outs[job->n_outs++];
    *out = (Outgoing){at, size, next, -1, kind, 0, epoch, 0};
    return out;
}

/* A dense batch is sent unchanged. */
static void pass(Job *job, int64_t at, int64_t size, int64_t next, int32_t epoch) {
    const uint8_t *b = job->in + at;
    Outgoing *out = emit(job, PASSED, at, size, next, epoch);
    out->count = (int32_t)get32(b + COUNT_AT);
    out->max_time = (int64_t)get64(b + MAX_TIME_AT);
    out->stretches = 1;
    job->stretches[job->n_stretches++] = (Stretch){(int64_t)get64(b), out->count};
}

static void finish(Job *job, Making *m) {
    if (m->alone) pass(job, m->in_at, m->in_size, m->next, m->epoch);
    m->alone = 0;
    if (!m->batches) return;
    const int64_t size = m->at - m->begin;
    const int32_t stretches = (int32_t)(job->n_stretches - m->first_stretch);
    Outgoing *out = &job->outs[job->n_outs++];
    *out = (Outgoing){m->begin, size, m->next, m->max_time, MADE, m->count, m->epoch, stretches};
    if (m->batches == 1 && m->whole) { /* it can be sent unchanged */
        out->kind = PASSED;
        out->at = m->in_at;
        out->size = m->in_size;
        m->at = m->begin;
    } else {
        uint8_t *b = job->room + m->begin;
        memset(b, 0, HEADER);
        memset(b + EPOCH_AT, 255, 4);
        b[MAGIC_AT] = 2;
        put32(b + DELTA_AT, (uint32_t)m->count - 1);
        put64(b + BASE_TIME_AT, (uint64_t)m->base_time);
        put64(b + MAX_TIME_AT, (uint64_t)m->max_time);
        memset(b + PRODUCER_AT, 255, COUNT_AT - PRODUCER_AT);
        put32(b + COUNT_AT, (uint32_t)m->count);
        seal_header(b, size, m->records);
    }
    m->batches = 0;
    m->begin = m->at;
}

/* 1: the wanted records of a batch were added to the one being made; 0: there is no room for
 * them; -1: it is malformed. After 0 and -1 the batch being made is unchanged, except `count` of
 * its last stretch. */
static int append_records(Job *job, Making *m, const uint8_t *b, int64_t size) {
    const int64_t left = job->room_size - m->begin;
    const int64_t bound = m->begin + (m->batches && job->limit < left ? job->limit : left);
    const int64_t first_stretch = m->batches ? m->first_stretch : job->n_stretches;
    int64_t at = m->batches ? m->at : m->begin + HEADER, stretches = job->n_stretches;
    int64_t base_time = m->base_time, max_time = m->max_time;
    int32_t n = m->batches ? m->count : 0;
    Records from = records_of(b, size);
    Record record;
    int more;
    if (at > bound) return 0;
    while ((more = next_record(&from, &record)) == 1) {
        if (record.offset < job->wanted) continue;
        if (!n) base_time = max_time = record.time;
        if (record.time > max_time) max_time = record.time;
        const uint64_t t = zigzag((int64_t)((uint64_t)record.time - (uint64_t)base_time));
        const uint64_t d = zigzag(n);
        const int64_t length = 1 + width(t) + width(d) + record.rest_size;
        if (length > INT32_MAX || at + width(zigzag(length)) + length > bound) return 0;
        if (n == INT32_MAX || !stretch_to(job->stretches, first_stretch, &stretches,
                                          job->most_stretches, record.offset))
            return 0;
        uint8_t *w = put_varint(job->room + at, zigzag(length));
        *w++ = record.attributes;
        w = put_varint(put_varint(w, t), d);
        memcpy(w, record.rest, (size_t)record.rest_size);
        at = w + record.rest_size - job->room;
        n++;
    }
    if (more) return more;
    const int64_t had = m->batches ? m->at : m->begin + HEADER;
    m->records = crc_bytes(m->batches ? m->records : 0, job->room + had, at - had);
    m->first_stretch = first_stretch;
    m->at = at;
    m->base_time = base_time;
    m->max_time = max_time;
    m->count = n;
    job->n_stretches = stretches;
    return 1;
}

static int append(Job *job, Making *m, const uint8_t *b, int64_t size) {
    Stretch *open = m->batches ? &job->stretches[job->n_stretches - 1] : 0;
    const int64_t count = open ? open->count : 0;
    const int done = append_records(job, m, b, size);
    if (done != 1 && open) open->count = count;
    return done;
}

static void wait_alone(Making *m, int64_t at, int64_t size, int64_t next, int32_t epoch) {
    m->alone = 1;
    m->in_at = at;
    m->in_size = size;
    m->next = next;
    m->epoch = epoch;
}

/* Another batch follows the single one, so that one is parsed. */
static void take_alone(Job *job, Making *m) {
    const uint8_t *b = job->in + m->in_at;
    m->alone = 0;
    const int valid = is_valid(job, b, m->in_size);
    const int done = valid ? append(job, m, b, m->in_size) : -1;
    if (done == 1) {
        m->whole = m->batches = 1;
        m->append_time = 0;
    } else if (done) {
        emit(job, PLAIN, m->in_at, m->in_size, m->next, m->epoch);
    } else {
        pass(job, m->in_at, m->in_size, m->next, m->epoch);
    }
}

/* Nothing of a batch is sent; the batch being made, or the last dropped stretch, includes it. */
static void drop(Job *job, Making *m, int64_t at, int64_t size, int64_t next, int32_t epoch) {
    Outgoing *last = job->n_outs ? &job->outs[job->n_outs - 1] : 0;
    if (m->batches || m->alone) {
        m->next = next;
        m->epoch = epoch;
    } else if (last && last->kind == DROPPED) {
        last->next = next;
        last->epoch = epoch;
    } else {
        emit(job, DROPPED, at, size, next, epoch);
    }
}

/* Adds one complete batch; 0: another room is needed. */
static int take(Job *job, Making *m, int64_t at, int64_t size) {
    const uint8_t *b = job->in + at;
    const int32_t count = (int32_t)get32(b + COUNT_AT), last = (int32_t)get32(b + DELTA_AT);
    const int32_t epoch = (int32_t)get32(b + EPOCH_AT);
    const int64_t base = (int64_t)get64(b), next = (int64_t)((uint64_t)base + (uint64_t)last + 1);
    const uint16_t attributes = get16(b + ATTRIBUTES_AT);
    const int nothing = attributes & CONTROL || !count || next <= job->wanted;
    if (count < 0 || last < 0 || base < 0 || next < 0 || (nothing && !is_valid(job, b, size))) {
        finish(job, m);
        emit(job, PLAIN, at, size, next, epoch); /* the plain path raises the error */
        return 1;
    }
    if (nothing) {
        drop(job, m, at, size, next, epoch);
        return 1;
    }
    const int append_time = attributes & APPEND_TIME;
    int whole = base >= job->wanted && count == (int64_t)last + 1 && !append_time;
    if (!(attributes & CODEC) && (!whole || (job->limit && size <= job->largest))) {
        if (m->batches && (append_time != m->append_time || !job->limit)) finish(job, m);
        if (m->alone && append_time) finish(job, m);
        if (m->alone) take_alone(job, m);
        if (whole && !m->batches) {
            wait_alone(m, at, size, next, epoch);
            return 1;
        }
        if (!is_valid(job, b, size)) {
            whole = 0; /* the plain path raises the error */
        } else {
            int done = append(job, m, b, size);
            if (!done && m->batches) {
                finish(job, m);
                if (whole) {
                    wait_alone(m, at, size, next, epoch);
                    return 1;
                }
                done = append(job, m, b, size);
            }
            if (done == 1 && !m->batches && !m->count) { /* none of its records is wanted */
                drop(job, m, at, size, next, epoch);
                return 1;
            }
            if (done == 1) {
                m->whole = whole;
                m->in_at = at;
                m->in_size = size;
                m->next = next;
                m->epoch = epoch;
                m->append_time = append_time;
                m->batches++;
                return 1;
            }
            if (!done && job->n_outs) return 0;
        }
    }
    finish(job, m);
    if (whole) {
        pass(job, at, size, next, epoch);
    } else {
        emit(job, PLAIN, at, size, next, epoch);
    }
    return 1;
}

/* Decides the treatment of each of some batches. Returns the byte where it stopped: the end, an
 * incomplete batch, or where the outputs or the room were full. A call from there continues. */
int64_t srm_merge(Job *job) {
    Making m = {0};
    int64_t at = 0;
    job->n_outs = job->n_stretches = 0;
    job->more = 0;
    while (job->size - at > MAGIC_AT) {
        if (job->n_outs + 3 >= job->most_outs || job->n_stretches + 3 >= job->most_stretches) {
            job->more = 1;
            break;
        }
        const uint8_t *b = job->in + at;
        const int64_t left = job->size - at;
        const int64_t size = (int64_t)PREFIX + (int32_t)get32(b + LENGTH_AT);
        const int known = b[MAGIC_AT] == 2 && size >= HEADER;
        if (size > left && (known || b[MAGIC_AT] < 2)) break;
        if (known && (int64_t)get64(b) < m.behind) {
            finish(job, &m);
            emit(job, DISORDER, at, left, (int64_t)get64(b), -1);
            return job->size;
        }
        if (known) {
            if (!take(job, &m, at, size)) {
                job->more = 1;
                break;
            }
            m.behind = (int64_t)(get64(b) + get32(b + DELTA_AT) + 1);
            at += size;
            continue;
        }
        /* Of an older format, or an error together with all that follows. */
        finish(job, &m);
        const int64_t plain = b[MAGIC_AT] < 2 && size > MAGIC_AT ? size : left;
        emit(job, PLAIN, at, plain, 0, -1);
        at += plain;
    }
    finish(job, &m);
    return at;
}

/* Makes a batch ours: base offset 0, our producer, no transaction. A CRC is linear, so a wrong
 * one remains wrong. */
void srm_rewrite(uint8_t *b, int64_t size, int64_t producer, int16_t epoch, int32_t sequence) {
    const uint32_t before = crc_bytes(0, b + ATTRIBUTES_AT, HEADER - ATTRIBUTES_AT);
    put64(b, 0);
    put32(b + LENGTH_AT, (uint32_t)(size - PREFIX));
    put16(b + ATTRIBUTES_AT, get16(b + ATTRIBUTES_AT) & CODEC);
    put64(b + PRODUCER_AT, (uint64_t)producer);
    put16(b + PRODUCER_EPOCH_AT, (uint16_t)epoch);
    put32(b + SEQUENCE_AT, (uint32_t)sequence);
    const uint32_t change = before ^ crc_bytes(0, b + ATTRIBUTES_AT, HEADER - ATTRIBUTES_AT);
    put32(b + CRC_AT, get32(b + CRC_AT) ^ crc_behind_zeros(change, size - HEADER));
}

/* Writes the length and the checksum of a batch we made. */
void srm_seal(uint8_t *b, int64_t size) { seal(b, size); }

uint32_t srm_crc32c(const uint8_t *p, int64_t n) { return crc32c(p, n); }

/* Returns the version of this interface, which library.py checks. */
int32_t srm_begin(int use_instruction) {
    crc_begin(use_instruction);
    return 4;
}
