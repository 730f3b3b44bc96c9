//! Suffixes below which strangers hold names, so that `*.SUFFIX` would let an agent reach a host of
//! its own making. A short list of the usual ones, not the public suffix list: it guards against a
//! slip of the pen, and `host = "..."` one by one is the way to be sure.

/// Second-level labels under which country registries sell names: `co.uk`, `com.au`, ...
const REGISTRY_LABELS: &[&str] = &[
    "ac", "co", "com", "edu", "gen", "go", "gob", "gov", "gouv", "gv", "ltd", "me", "mil", "ne",
    "net", "nom", "or", "org", "plc", "sch",
];

/// Hosting services that give a name below theirs to anybody.
const SHARED: &[&str] = &[
    "amazonaws.com",
    "app.github.dev",
    "appspot.com",
    "azureedge.net",
    "azurewebsites.net",
    "blob.core.windows.net",
    "blogspot.com",
    "cloudapp.net",
    "cloudfront.net",
    "deno.dev",
    "duckdns.org",
    "firebaseapp.com",
    "fly.dev",
    "github.dev",
    "github.io",
    "githubpreview.dev",
    "githubusercontent.com",
    "gitlab.io",
    "herokuapp.com",
    "hf.space",
    "lambda-url.us-east-1.on.aws",
    "lhr.life",
    "netlify.app",
    "ngrok.app",
    "ngrok.io",
    "ngrok-free.app",
    "nip.io",
    "on.aws",
    "onrender.com",
    "pages.dev",
    "r2.dev",
    "railway.app",
    "readthedocs.io",
    "replit.dev",
    "run.app",
    "s3.amazonaws.com",
    "sslip.io",
    "storage.googleapis.com",
    "surge.sh",
    "trycloudflare.com",
    "vercel.app",
    "web.app",
    "windows.net",
    "workers.dev",
];

/// Whether strangers hold names below `suffix` (canonical form, no leading dot).
pub(crate) fn is_shared(suffix: &str) -> bool {
    let mut labels = suffix.rsplit('.');
    let top = labels.next().unwrap_or_default();
    let Some(second) = labels.next() else {
        // A whole top-level domain. `internal`, `test` and kin have no strangers, but a single
        // label is still too wide to mean anything.
        return true;
    };
    let registry = top.len() == 2 && labels.next().is_none() && REGISTRY_LABELS.contains(&second);
    registry || SHARED.contains(&suffix)
}
