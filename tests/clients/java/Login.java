import java.net.Authenticator;
import java.net.PasswordAuthentication;
import java.util.Optional;

/** What programs that mind the properties https.proxyUser and https.proxyPassword do about them. */
final class Login {
    private Login() {}

    static Optional<Authenticator> fromProperties() {
        String user = System.getProperty("https.proxyUser");
        if (user == null) {
            return Optional.empty();
        }
        char[] password = System.getProperty("https.proxyPassword", "").toCharArray();
        return Optional.of(
                new Authenticator() {
                    @Override
                    protected PasswordAuthentication getPasswordAuthentication() {
                        return getRequestorType() == RequestorType.PROXY ? new PasswordAuthentication(user, password) : null;
                    }
                });
    }
}
