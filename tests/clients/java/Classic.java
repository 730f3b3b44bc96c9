import java.io.InputStream;
import java.net.Authenticator;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;

/** java.net.HttpURLConnection: prints the status, the reason phrase and the body. */
public final class Classic {
    private Classic() {}

    public static void main(String[] args) throws Exception {
        Login.fromProperties().ifPresent(Authenticator::setDefault);
        HttpURLConnection connection = (HttpURLConnection) new URL(args[0]).openConnection();
        connection.setConnectTimeout(60_000);
        connection.setReadTimeout(60_000);
        int status = connection.getResponseCode();
        System.out.println(status + " " + connection.getResponseMessage());
        try (InputStream body = status >= 400 ? connection.getErrorStream() : connection.getInputStream()) {
            if (body != null) {
                System.out.println(new String(body.readAllBytes(), StandardCharsets.UTF_8));
            }
        }
        System.exit(status >= 400 ? 1 : 0);
    }
}
