import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

/** Reads record batches with Kafka's own classes and prints each record in hexadecimal. */
public class DecodeBatches {
    public static void main(String[] arguments) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        StringBuilder out = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
            batch.ensureValid();
            out.append("batch ").append(batch.countOrNull()).append(' ')
                .append(batch.lastOffset() - batch.baseOffset()).append(' ')
                .append(batch.maxTimestamp()).append(' ').append(batch.compressionType().id).append('\n');
            for (Record record : batch) {
                record.ensureValid();
                out.append(record.offset()).append(' ').append(record.timestamp()).append(' ')
                    .append(hex(record.key())).append(' ').append(hex(record.value()));
                for (Header header : record.headers()) {
                    out.append(' ').append(header.key()).append('=')
                        .append(header.value() == null ? "null" : HexFormat.of().formatHex(header.value()));
                }
                out.append('\n');
            }
        }
        System.out.print(out);
    }

    private static String hex(ByteBuffer bytes) {
        return bytes == null ? "null" : "x" + HexFormat.of().formatHex(Utils.toArray(bytes));
    }
}
