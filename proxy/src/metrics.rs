//! What the gate does, for Prometheus: on the control socket (`GET /v1/metrics`), and on a loopback
//! port of its own where the configuration names one, for the uids that it lists.
//!
//! `docs/metrics.md` describes each. No label is chosen by an agent.

mod listener;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::audit::tally::{BOUNDS_MS, Latencies, Tally};
use crate::boundary::{Source, refusals};
use crate::control::custody::Custody;
use crate::credential::CredentialHealth;

pub use listener::serve;

type Labels = Vec<(&'static str, String)>;

/// Counters and gauges by their labels.
struct Sheet(Registry);

impl Sheet {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }

    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Gauge>::default();
        for (labels, value) in values {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, help, family);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.gauges(name, help, [(Labels::new(), value)]);
    }
}

/// Everything, in the text format of OpenMetrics.
///
/// # Errors
/// When a value cannot be written as text, which does not happen in practice.
pub fn render(custody: &Custody) -> Result<String, std::fmt::Error> {
    let mut sheet = Sheet(Registry::with_prefix("portcullis"));
    let (tally, lag) = custody.audit.tally();
    requests(&mut sheet, &tally);
    let status = custody.status();
    sheet.gauge(
        "ready",
        "Whether a permitted request would pass now",
        u64::from(status.ready),
    );
    sheet.gauge(
        "runs",
        "Open runs",
        u64::try_from(status.runs).unwrap_or(u64::MAX),
    );
    sheet.gauge(
        "boundary_ok",
        "Whether the kernel boundary is proven",
        u64::from(status.boundary.ok),
    );
    sheet.gauges(
        "policy_stale",
        "Whether a profile's policy file is broken and an older one in force",
        status
            .policies
            .iter()
            .map(|(profile, view)| (label("profile", profile), u64::from(view.stale.is_some()))),
    );
    sheet.gauges(
        "credential_ok",
        "Whether a credential is loaded and well",
        status.credentials.iter().map(|credential| {
            (
                label("credential", &credential.name.to_string()),
                u64::from(credential.problem.is_none()),
            )
        }),
    );
    credentials(&mut sheet, &custody.vault.health());
    sheet.gauge(
        "audit_ok",
        "Whether the log can be written",
        u64::from(status.audit.ok),
    );
    sheet.gauge("audit_sequence", "The last line's number", status.audit.seq);
    sheet.gauge(
        "audit_lag_lines",
        "Lines that are not known to be on the disk",
        lag.lines,
    );
    sheet.gauge(
        "audit_waiting",
        "Requests that wait for the disk",
        u64::try_from(lag.waiting).unwrap_or(u64::MAX),
    );
    let micros = u64::try_from(lag.last_sync.as_micros()).unwrap_or(u64::MAX);
    sheet.gauge(
        "audit_last_sync_microseconds",
        "How long the last sync took",
        micros,
    );
    if let Some((cached, most)) = custody.leaf_cache() {
        sheet.gauge("leaf_cache", "Leaf certificates that are kept", cached);
        sheet.gauge(
            "leaf_cache_most",
            "Leaf certificates that are kept at most",
            most,
        );
    }
    if let Source::Status(path) = custody.boundary.source() {
        sheet.counters(
            "boundary_refused_packets",
            "Packets that the kernel boundary refused",
            refusals::counted(path)
                .into_iter()
                .map(|(uid, count)| (label("uid", &uid), count)),
        );
    }
    let mut text = String::new();
    encode(&mut text, &sheet.0)?;
    let end = text.find("# EOF").unwrap_or(text.len());
    text.insert_str(end, &histogram(&tally.latencies));
    Ok(text)
}

fn credentials(sheet: &mut Sheet, all: &[CredentialHealth]) {
    let of = |one: &CredentialHealth| label("credential", &one.name.to_string());
    let gauge = |value: fn(&CredentialHealth) -> bool| {
        all.iter()
            .map(move |one| (of(one), u64::from(value(one))))
            .collect::<Vec<_>>()
    };
    sheet.gauges(
        "credential_loaded",
        "Whether a credential can be injected now",
        gauge(|one| one.loaded),
    );
    sheet.gauges(
        "credential_stale",
        "Whether an older value is in use because the present one cannot be",
        gauge(|one| one.stale),
    );
    sheet.gauges(
        "credential_sick",
        "Whether an upstream refuses a credential",
        gauge(|one| one.sick),
    );
    sheet.gauges(
        "credential_canary_works",
        "What the last canary call found",
        all.iter()
            .filter_map(|one| Some((of(one), u64::from(one.canary_works?)))),
    );
    sheet.counters(
        "credential_injected",
        "Requests that a credential was put on",
        all.iter().map(|one| (of(one), one.injected)),
    );
    sheet.counters(
        "credential_refused",
        "Of those, how many the upstream answered with 401",
        all.iter().map(|one| (of(one), one.refused)),
    );
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

fn requests(sheet: &mut Sheet, tally: &Tally) {
    let labels = tally.requests.iter().flat_map(|(service, outcomes)| {
        outcomes.iter().map(move |((verdict, status), count)| {
            let labels = vec![
                ("verdict", (*verdict).to_owned()),
                ("service", service.clone()),
                ("status", (*status).to_owned()),
            ];
            (labels, *count)
        })
    });
    sheet.counters("requests", "Requests that ended or were refused", labels);
    let codes = tally.refused.iter();
    sheet.counters(
        "refusals",
        "Refusals that were written to the log",
        codes.map(|(code, count)| (label("code", code), *count)),
    );
    let (inward, outward) = tally.bytes;
    sheet.counters(
        "body_bytes",
        "Body bytes from clients and to them",
        [
            (label("from", "client"), inward),
            (label("from", "upstream"), outward),
        ],
    );
    let (read, written) = tally.tokens;
    sheet.counters(
        "tokens",
        "Tokens that models read and wrote",
        [
            (label("kind", "read"), read),
            (label("kind", "written"), written),
        ],
    );
    let none = Labels::new();
    let cost = [(none.clone(), tally.cost_microusd)];
    sheet.counters("cost_microusd", "Cost in millionths of a US dollar", cost);
    sheet.counters(
        "holds",
        "Requests that waited for a decision",
        [(none, tally.holds)],
    );
}

/// A histogram that was counted elsewhere, as text.
fn histogram(latencies: &Latencies) -> String {
    const NAME: &str = "portcullis_request_duration_seconds";
    let mut text = format!(
        "# HELP {NAME} From the head of a permitted request to its end.\n# TYPE {NAME} histogram\n"
    );
    let mut upto = 0;
    let bounds = BOUNDS_MS
        .iter()
        .map(|ms| format!("{}.{:03}", ms / 1000, ms % 1000));
    for (count, bound) in latencies
        .counts
        .iter()
        .zip(bounds.chain(["+Inf".to_owned()]))
    {
        upto += count;
        text.push_str(&format!("{NAME}_bucket{{le=\"{bound}\"}} {upto}\n"));
    }
    let (seconds, rest) = (latencies.sum_ms / 1000, latencies.sum_ms % 1000);
    text.push_str(&format!(
        "{NAME}_sum {seconds}.{rest:03}\n{NAME}_count {upto}\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kinds of service that read model traffic fill in, and requests that wait for a decision.
    #[test]
    fn what_a_record_carries_moves_its_series() {
        use policy::record::{Record, RecordKind, Verdict};
        let shown = |tally: &Tally| {
            let mut sheet = Sheet(Registry::with_prefix("portcullis"));
            requests(&mut sheet, tally);
            let mut text = String::new();
            encode(&mut text, &sheet.0).unwrap();
            text + &histogram(&tally.latencies)
        };
        let mut record = Record::new(RecordKind::Response, "x", "t");
        record.verdict = Some(Verdict::Allow);
        record.rule = Some(policy::RuleId::parse("model").unwrap());
        record.status = Some(200);
        record.ms = Some(40);
        (record.bytes_in, record.bytes_out) = (Some(3), Some(4));
        (record.tokens_in, record.tokens_out) = (Some(1200), Some(34));
        record.cost_microusd = Some(1500);
        record.hold = Some("h".to_owned());
        let mut tally = Tally::default();
        tally.add(&Record::new(RecordKind::Event, "x", "t"));
        let before = shown(&tally);
        tally.add(&record);
        tally.add(&record);
        let after = shown(&tally);
        let wanted = [
            "portcullis_tokens_total{kind=\"read\"} 2400",
            "portcullis_tokens_total{kind=\"written\"} 68",
            "portcullis_cost_microusd_total 3000",
            "portcullis_holds_total 2",
            "portcullis_body_bytes_total{from=\"client\"} 6",
            "portcullis_body_bytes_total{from=\"upstream\"} 8",
            "portcullis_request_duration_seconds_count 2",
            "portcullis_request_duration_seconds_sum 0.080",
            "portcullis_request_duration_seconds_bucket{le=\"0.050\"} 2",
            "portcullis_requests_total{verdict=\"allow\",service=\"model\",status=\"2xx\"} 2",
        ];
        for line in wanted {
            let has = |text: &str| text.lines().any(|it| it == line);
            assert!(has(&after), "{line} is not in: {after}");
            assert!(!has(&before), "control: {line}");
        }
    }

    #[test]
    fn a_histogram_counts_up_and_ends_with_all() {
        let mut latencies = Latencies::default();
        latencies.counts[0] = 2;
        latencies.counts[3] = 1;
        latencies.sum_ms = 1007;
        let text = histogram(&latencies);
        assert!(text.contains("_bucket{le=\"0.001\"} 2\n"), "{text}");
        assert!(text.contains("_bucket{le=\"+Inf\"} 3\n"), "{text}");
        assert!(text.ends_with("_sum 1.007\nportcullis_request_duration_seconds_count 3\n"));
    }
}
