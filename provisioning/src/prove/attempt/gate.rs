//! What is asked of the gate over its sockets.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::prove::kind::Kind;
use crate::prove::task::{Outcome, Report, Task};

/// Asks the control socket how the gate is.
pub(super) fn control_socket(task: &Task) -> Report {
    let Some(path) = task.paths.first() else {
        return Report::new(Outcome::Unable, "the attempt names no socket");
    };
    let request = "GET /v1/status HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n";
    match ask(path, request, task.patience_ms) {
        Err(error) => Report::of_error(&error),
        Ok(answer) => {
            let line = answer.lines().next().unwrap_or("closed without an answer");
            let granted = line
                .split(' ')
                .nth(1)
                .is_some_and(|code| code.starts_with('2'));
            let outcome = if granted {
                Outcome::Granted
            } else {
                Outcome::Refused
            };
            Report::new(outcome, line)
        }
    }
}

/// One request through the gate: `names[0]` is the request line's method and target, the rest are fields.
pub(super) fn gate_request(task: &Task) -> Report {
    let (Some(path), Some((asked, fields))) = (task.paths.first(), task.names.split_first()) else {
        return Report::new(Outcome::Unable, "the attempt names no socket");
    };
    let mut request = format!("{asked} HTTP/1.1\r\n");
    for field in fields {
        request.push_str(&format!("{field}\r\n"));
    }
    request.push_str("Connection: close\r\n\r\n");
    match ask(path, &request, task.patience_ms) {
        Err(error) => Report::of_error(&error),
        Ok(answer) => {
            let line = answer.lines().next().unwrap_or("closed without an answer");
            let code = line.split(' ').nth(1).unwrap_or_default();
            let outcome = if code.starts_with('2') {
                Outcome::Answered
            } else {
                Outcome::Refused
            };
            let mut found = vec![code.to_owned()];
            if task.kind == Kind::GateError {
                found.extend(repeated(&answer, asked, fields));
            }
            Report {
                found,
                ..Report::new(outcome, line)
            }
        }
    }
}

/// A shorter part may stand in any page by chance.
const TELLING: usize = 8;

/// What of a request stands in its answer: parts of the target behind its host, and values of fields other than Host.
fn repeated(answer: &str, line: &str, fields: &[String]) -> Vec<String> {
    let target = line.splitn(5, '/').skip(3);
    let parts = target.flat_map(|rest| rest.split(['/', '?', '&', '=']));
    let values = fields
        .iter()
        .filter_map(|field| field.split_once(':'))
        .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim());
    parts
        .chain(values)
        .filter(|part| part.len() >= TELLING && answer.contains(part))
        .map(str::to_owned)
        .collect()
}

fn ask(path: &Path, request: &str, patience_ms: u64) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    let patience = Some(Duration::from_millis(patience_ms));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // An answer cut short is judged by what came.
    match stream.take(64 << 10).read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_repeats_of_a_request_is_found() {
        let fields = ["Host: a-host.test", "X-A: secret-field"].map(str::to_owned);
        let line = "GET http://a-host.test:81/secret-path?secret-query=1";
        let of = |page: &str| repeated(page, line, &fields);
        assert_eq!(of("<p>502 a-host.test 1</p>"), Vec::<String>::new());
        assert_eq!(of("/secret-path?"), ["secret-path"]);
        assert_eq!(
            of("secret-query and secret-field"),
            ["secret-query", "secret-field"]
        );
    }
}
