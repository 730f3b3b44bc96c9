import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** java.net.http.HttpClient as it comes: prints the status, the protocol and the body. */
public final class Modern {
    private Modern() {}

    public static void main(String[] args) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(args[0])).timeout(Duration.ofSeconds(60)).build();
        // The default client has no proxy selector of its own and asks the system's, which reads the properties.
        HttpClient.Builder builder = HttpClient.newBuilder().proxy(ProxySelector.getDefault());
        Login.fromProperties().ifPresent(builder::authenticator);
        HttpClient client = builder.build();
        HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(response.statusCode() + " " + response.version());
        System.out.println(response.body());
        System.exit(response.statusCode() >= 400 ? 1 : 0);
    }
}
