//! What one request and its answer may take, as far as a service bounds it.

/// The most that `max_request_bytes` and `max_response_bytes` can say: 1 PiB.
pub(crate) const MOST_BYTES: u64 = 1 << 50;
/// The most that `max_seconds` can say: 30 days.
pub(crate) const MOST_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Bounds of one request with its answer; what is absent is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// `max_request_bytes`: of the request's body, or of what the client sends through a WebSocket.
    pub request_bytes: Option<u64>,
    /// `max_response_bytes`: of the answer's body as it is sent, or of what the upstream sends
    /// through a WebSocket.
    pub response_bytes: Option<u64>,
    /// `max_seconds`: from the verdict to the last byte of the answer, or to a WebSocket's end.
    pub seconds: Option<u64>,
}

impl Caps {
    /// The narrower bound of each two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let narrower = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            request_bytes: narrower(self.request_bytes, other.request_bytes),
            response_bytes: narrower(self.response_bytes, other.response_bytes),
            seconds: narrower(self.seconds, other.seconds),
        }
    }

    /// Each bound that is set, by its key in a policy.
    pub(crate) fn keys(self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("max_request_bytes", self.request_bytes),
            ("max_response_bytes", self.response_bytes),
            ("max_seconds", self.seconds),
        ];
        all.into_iter()
            .filter_map(|(key, bound)| bound.map(|bound| (key, bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::Caps;

    #[test]
    fn of_two_bounds_the_narrower_counts_whatever_their_order() {
        let one = Caps {
            request_bytes: Some(1),
            response_bytes: Some(9),
            seconds: None,
        };
        let other = Caps {
            request_bytes: None,
            response_bytes: Some(2),
            seconds: Some(3),
        };
        let both = Caps {
            request_bytes: Some(1),
            response_bytes: Some(2),
            seconds: Some(3),
        };
        assert_eq!((one.and(other), other.and(one)), (both, both));
        assert_eq!(one.and(Caps::default()), one);
        assert_eq!(Caps::default().keys().count(), 0);
    }
}
