/* Record batches as bytes: the layout, and reading one record after the other.
 *
 * Kafka's DefaultRecordBatch and DefaultRecord (version 2):
 *
 *   batch:  0 baseOffset i64 | 8 length i32 | 12 leaderEpoch i32 | 16 magic i8 | 17 crc u32
 *           21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
 *           43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 count i32 | 61 records
 *   record: length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | the rest
 *
 * No length in a batch is trusted: each is checked against the bytes present.
 */
#ifndef SRM_BATCH_H
#define SRM_BATCH_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian processors"
#endif

enum {
    LENGTH_AT = 8, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, DELTA_AT = 23,
    BASE_TIME_AT = 27, MAX_TIME_AT = 35, PRODUCER_AT = 43, PRODUCER_EPOCH_AT = 51,
    SEQUENCE_AT = 53, COUNT_AT = 57, HEADER = 61, PREFIX = 12 /* not counted by a length */
};
enum { CODEC = 0x07, APPEND_TIME = 0x08, CONTROL = 0x20 };

typedef struct { int64_t first, count; } Stretch; /* consecutive records: first source offset, number */

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static uint64_t get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
static const uint8_t *varint(const uint8_t *p, const uint8_t *end, int most, int64_t *value) {
    uint64_t raw = 0;
    for (int i = 0; i < most && p < end; i++) {
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return p;
        }
    }
    return 0;
}

typedef struct {
    const uint8_t *at, *end; /* the next record, and the end of all */
    int64_t base, base_time, max_time;
    int32_t left, last, before; /* records left, last and latest offset delta */
    int append_time;
} Records;

typedef struct {
    int64_t offset, time, rest_size;
    const uint8_t *rest; /* key, value and headers, each with its length */
    uint8_t attributes;
} Record;

static Records records_of(const uint8_t *b, int64_t size) {
    return (Records){
        .at = b + HEADER, .end = b + size, .base = (int64_t)get64(b),
        .base_time = (int64_t)get64(b + BASE_TIME_AT), .max_time = (int64_t)get64(b + MAX_TIME_AT),
        .left = (int32_t)get32(b + COUNT_AT), .last = (int32_t)get32(b + DELTA_AT), .before = -1,
        .append_time = get16(b + ATTRIBUTES_AT) & APPEND_TIME};
}

/* 1: a record; 0: the end of the batch, without extra bytes; -1: the batch is malformed. */
static int next_record(Records *from, Record *record) {
    int64_t length, time_delta, delta;
    if (from->left <= 0) return !from->left && from->at == from->end ? 0 : -1;
    const uint8_t *p = varint(from->at, from->end, 5, &length);
    if (!p || length < 1 || length > from->end - p) return -1;
    const uint8_t *stop = p + length;
    const uint8_t *q = varint(p + 1, stop, 10, &time_delta);
    if (!q || !(q = varint(q, stop, 5, &delta)) || delta <= from->before || delta > from->last)
        return -1;
    const int64_t time = (int64_t)((uint64_t)from->base_time + (uint64_t)time_delta);
    *record = (Record){(int64_t)((uint64_t)from->base + (uint64_t)delta), from->append_time ? from->max_time : time, stop - q, q, *p};
    from->before = (int32_t)delta;
    from->at = stop;
    from->left--;
    return 1;
}

/* Adds a record to the stretches from `first`; 0 if there is no room for one. */
static inline int stretch_to(Stretch *stretches, int64_t first, int64_t *n, int64_t most, int64_t offset) {
    Stretch *last = *n > first ? &stretches[*n - 1] : 0;
    if (last && last->first + last->count == offset) {
        last->count++;
        return 1;
    }
    if (*n == most) return 0;
    stretches[(*n)++] = (Stretch){offset, 1};
    return 1;
}

#endif
