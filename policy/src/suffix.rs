//! Suffixes below which strangers hold names, so that `*.SUFFIX` would let an agent reach a host of
//! its own making: whatever the public suffix list knows (registries, and services that give names
//! to anybody), and more of the usual ones. It guards against a slip of the pen; `host = "..."` one
//! by one is the way to be sure.

use psl::Psl as _;

/// Services that give names to anybody with regions, clusters or products between: nothing below
/// belongs to one owner for certain, however deep.
const DEEP: &[&str] = &[
    "aliyuncs.com",
    "amazonaws.com",
    "amazonaws.com.cn",
    "appdomain.cloud",
    "azmk8s.io",
    "azure-api.net",
    "azure.com",
    "azurecontainer.io",
    "azurecontainerapps.io",
    "azurecr.io",
    "azurefd.net",
    "azurestaticapps.net",
    "azurewebsites.net",
    "backblazeb2.com",
    "bcebos.com",
    "cloudapp.net",
    "cloudflarestorage.com",
    "devtunnels.ms",
    "digitaloceanspaces.com",
    "elasticbeanstalk.com",
    "fastly.net",
    "github.dev",
    "gitpod.io",
    "googleusercontent.com",
    "linodeobjects.com",
    "myhuaweicloud.com",
    "myqcloud.com",
    "nip.io",
    "on.aws",
    "oraclecloud.com",
    "pinggy.link",
    "replit.dev",
    "run.app",
    "scw.cloud",
    "sslip.io",
    "trafficmanager.net",
    "vultrobjects.com",
    "wasabisys.com",
    "windows.net",
    "xip.io",
];

/// Services that give a name directly below theirs to anybody, and that the list does not have, or
/// not everywhere: hosting, tunnels, tenants, and listeners for what others are made to send.
const SHARED: &[&str] = &[
    "akamaized.net",
    "app.github.dev",
    "appspot.com",
    "atlassian.net",
    "auth0.com",
    "azureedge.net",
    "b-cdn.net",
    "blogspot.com",
    "bore.pub",
    "burpcollaborator.net",
    "cloudfront.net",
    "codesandbox.io",
    "csb.app",
    "deno.dev",
    "deno.net",
    "dnslog.cn",
    "duckdns.org",
    "e2b.app",
    "e2b.dev",
    "edgesuite.net",
    "firebaseapp.com",
    "fly.dev",
    "freshdesk.com",
    "github.io",
    "githubpreview.dev",
    "githubusercontent.com",
    "gitlab.io",
    "glitch.me",
    "herokuapp.com",
    "hf.space",
    "ingest.sentry.io",
    "jfrog.io",
    "lhr.life",
    "lhr.rocks",
    "loca.lt",
    "localhost.run",
    "localtest.me",
    "localto.net",
    "loclx.io",
    "lvh.me",
    "modal.run",
    "mongodb.net",
    "my.salesforce.com",
    "myshopify.com",
    "netlify.app",
    "ngrok-free.app",
    "ngrok.app",
    "ngrok.dev",
    "ngrok.io",
    "notion.site",
    "oast.fun",
    "oast.live",
    "oast.me",
    "oast.online",
    "oast.pro",
    "oast.site",
    "oastify.com",
    "okta.com",
    "onrender.com",
    "pages.dev",
    "pipedream.net",
    "pythonanywhere.com",
    "r2.dev",
    "railway.app",
    "readthedocs.io",
    "repl.co",
    "requestbin.net",
    "serveo.net",
    "service-now.com",
    "sharepoint.com",
    "snowflakecomputing.com",
    "stackblitz.io",
    "storage.googleapis.com",
    "supabase.co",
    "surge.sh",
    "telebit.io",
    "traefik.me",
    "translate.goog",
    "trycloudflare.com",
    "tunnelmole.net",
    "vercel.app",
    "visualstudio.com",
    "web.app",
    "webcontainer.io",
    "webflow.io",
    "webhook.site",
    "wixsite.com",
    "workers.dev",
    "zendesk.com",
];

/// Whether strangers hold names below `suffix` (canonical form, no leading dot).
pub(crate) fn is_shared(suffix: &str) -> bool {
    // A whole top-level domain. `internal`, `test` and kin have no strangers, but a single label is
    // still too wide to mean anything.
    if !suffix.contains('.') {
        return true;
    }
    let at_or_below = |wide: &&str| {
        suffix
            .strip_suffix(*wide)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    // `*.core.windows.net` covers what `*.blob.core.windows.net` does.
    let above = |shared: &&str| {
        shared
            .strip_suffix(suffix)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    is_public_suffix(suffix)
        // Whatever stands below is one: `compute.amazonaws.com`, by the rule of its regions.
        || is_public_suffix(&format!("{NOBODY}.{suffix}"))
        || DEEP.iter().any(at_or_below)
        || SHARED.iter().chain(DEEP).any(above)
}

/// A label that no rule of the list names.
const NOBODY: &str = "portcullis-nobody";

/// Whether the public suffix list has exactly this, in either of its sections.
fn is_public_suffix(name: &str) -> bool {
    let labels = name.as_bytes().rsplit(|byte| *byte == b'.');
    let found = psl::List.find(labels);
    // Without a type it is the list's default, by which every last label is one.
    found.typ.is_some() && found.len == name.len()
}

#[cfg(test)]
mod tests {
    use super::is_shared;
    use crate::pattern::HostPattern;

    fn refused(suffix: &str) -> bool {
        assert_eq!(
            HostPattern::parse(&format!("*.{suffix}")).is_err(),
            is_shared(suffix),
            "{suffix}"
        );
        is_shared(suffix)
    }

    /// Attack: DST-06
    #[test]
    fn a_suffix_below_which_anybody_can_have_a_name_does_not_load() {
        let registries = "com internal co.uk com.au org.br gov.uk k12.ca.us kawasaki.jp ck foo.ck \
            co.jp com.cn edu.pl xn--p1ai";
        let listed = "github.io translate.goog ngrok.dev ngrok-free.dev ngrok.pizza fly.dev pages.dev \
            s3.eu-west-1.amazonaws.com s3.amazonaws.com s3-website-us-east-1.amazonaws.com \
            lambda-url.us-east-1.on.aws a.run.app googleapis.com supabase.co myshopify.com ts.net \
            pythonanywhere.com tunnelmole.net up.railway.app dyndns.org cloudfront.net vercel.app";
        let regions = "amazonaws.com compute.amazonaws.com eu-west-1.compute.amazonaws.com \
            eu-west-1.amazonaws.com s3.ap-southeast-7.amazonaws.com elb.amazonaws.com \
            execute-api.eu-west-1.amazonaws.com windows.net core.windows.net blob.core.windows.net \
            azurecontainerapps.io eastus.azurecontainerapps.io cloudapp.azure.com \
            westeurope.cloudapp.azure.com openai.azure.com oss-cn-hangzhou.aliyuncs.com run.app \
            europe-west1.run.app github.dev app.github.dev gitpod.io ws-eu1.gitpod.io \
            nyc3.digitaloceanspaces.com r2.cloudflarestorage.com s3.wasabisys.com nip.io 10.nip.io";
        let others = "loca.lt glitch.me sslip.io webhook.site oastify.com atlassian.net zendesk.com \
            serveo.net lhr.life storage.googleapis.com salesforce.com my.salesforce.com \
            ingest.sentry.io sentry.io sharepoint.com";
        for suffix in [registries, listed, regions, others]
            .into_iter()
            .flat_map(str::split_whitespace)
        {
            assert!(refused(suffix), "*.{suffix}");
        }
        for suffix in "example.com acme.github.io acme.co.uk api.acme.dev acme.internal acme.test \
            corp.example.co.jp acme.pages.dev acme.atlassian.net myproject.vercel.app acme.fly.dev \
            github.com anthropic.com openai.com debian.org \
            notamazonaws.com mywindows.net acme.myshopify.com www.ck"
            .split_whitespace()
        {
            assert!(!refused(suffix), "control: *.{suffix}");
        }
    }
}
