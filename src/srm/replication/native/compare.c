/* The resume walk's comparison: whether a batch of ours holds the records of batches of the source. */
#include "batch.h"

/* How far a batch of ours has been compared. */
typedef struct {
    const uint8_t *batch;
    int64_t size;
    int64_t at;         /* byte of the next record, 0 before the first */
    int32_t index;     /* its number */
    int32_t with_time; /* times are compared, too */
} Compared;

/* Compares the next records of ours with all those of a batch of the source; both uncompressed.
 * Returns the number of stretches of source offsets; -1, and is where it was, if the records differ,
 * ours ends before, or one of the batches is not well made or has more stretches than there is room
 * for. Records are equal if their bytes are, but for the way in which time and offset are written. */
int64_t srm_compare(Compared *ours, const uint8_t *theirs, int64_t size, Stretch *stretches, int64_t most) {
    Records mine = records_of(ours->batch, ours->size), others = records_of(theirs, size);
    Record copy, original;
    int64_t found = 0;
    int more;
    if (others.base < 0 || others.base > INT64_MAX - UINT32_MAX) return -1;
    if (ours->at) {
        mine.at = ours->batch + ours->at;
        mine.left -= ours->index;
        mine.before = ours->index - 1;
    }
    while ((more = next_record(&others, &original)) == 1) {
        if (next_record(&mine, &copy) != 1 || copy.attributes != original.attributes ||
            copy.rest_size != original.rest_size || (ours->with_time && copy.time != original.time) ||
            memcmp(copy.rest, original.rest, (size_t)copy.rest_size) ||
            !stretch_to(stretches, 0, &found, most, original.offset))
            return -1;
    }
    if (more) return -1;
    ours->at = mine.at - ours->batch;
    ours->index = (int32_t)get32(ours->batch + COUNT_AT) - mine.left;
    return found;
}
