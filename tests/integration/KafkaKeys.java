import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import javax.net.ssl.SSLContext;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the keys with their defaults that classes know, and the cipher suites of this Java. */
public class KafkaKeys {
    public static void main(String[] classes) throws Exception {
        for (String name : classes) {
            for (Class<?> each = Class.forName(name); each != null; each = each.getSuperclass()) {
                for (Field field : each.getDeclaredFields()) {
                    if (Modifier.isStatic(field.getModifiers())) {
                        field.setAccessible(true);
                        print(field.getName(), field.get(null));
                    }
                }
            }
            try {
                print("", Class.forName(name).getMethod("configDef").invoke(null));
            } catch (NoSuchMethodException | NullPointerException notStatic) {
                // its keys were in a field
            }
        }
        SSLContext tls = SSLContext.getDefault();
        for (String suite : tls.getDefaultSSLParameters().getCipherSuites()) {
            System.out.println("suite\t" + suite + "\t");
        }
    }

    private static void print(String field, Object value) {
        if (value instanceof ConfigDef) {
            for (ConfigDef.ConfigKey key : ((ConfigDef) value).configKeys().values()) {
                String given = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
                System.out.println("key\t" + key.name + "\t" + (given == null ? "" : given));
            }
        } else if (value instanceof String && field.endsWith("_CONFIG")) {
            System.out.println("key\t" + value + "\t");
        }
    }
}
