//! The interim answers (1xx) of an upstream before its final one: counted, bounded, and kept for who
//! may pass them on.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use tokio::sync::Notify;

use crate::exchange::body::{Meter, RequestBody};

/// Interim answers (103 and the like) taken before the final one.
const MOST_INTERIM: u32 = 16;
/// Bytes of fields in all of them.
const MOST_BYTES: usize = 32 * 1024;

/// The interim answers to one request of a client.
#[derive(Debug)]
pub struct Interim {
    count: AtomicU32,
    bytes: AtomicUsize,
    /// Whether somebody passes them on.
    wanted: bool,
    /// Whether some wait for that.
    waits: AtomicBool,
    heads: Mutex<Vec<(StatusCode, HeaderMap)>>,
    news: Notify,
    flood: Notify,
}

impl Interim {
    /// None has come. `wanted` says that the client can be given them.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self {
            count: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            wanted,
            waits: AtomicBool::new(false),
            heads: Mutex::default(),
            news: Notify::new(),
            flood: Notify::new(),
        }
    }

    /// Ends when there is something to [take](Self::take).
    pub async fn come(&self) {
        self.news.notified().await;
    }

    /// What has come to be passed on, in order.
    pub fn take(&self) -> Vec<(StatusCode, HeaderMap)> {
        if !self.waits.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends when they have become too many.
    pub(super) async fn flooded(&self) {
        self.flood.notified().await;
    }

    /// Whether they have become too many, also where the final answer came right behind them.
    pub(super) fn is_flooded(&self) -> bool {
        self.count.load(Ordering::Relaxed) > MOST_INTERIM
            || self.bytes.load(Ordering::Relaxed) > MOST_BYTES
    }

    /// Listens to those for a request that is about to be sent on HTTP/1.1, and lets its body go when
    /// the upstream asks for it.
    pub(super) fn watch(self: &Arc<Self>, request: &mut Request<RequestBody>, sent: &Arc<Meter>) {
        let (this, sent) = (Arc::clone(self), Arc::clone(sent));
        if sent.is_held() {
            let asks = HeaderValue::from_static("100-continue");
            request.headers_mut().insert(header::EXPECT, asks);
        }
        hyper::ext::on_informational(request, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                sent.release();
            }
            this.hear(answer.status(), answer.headers());
        });
    }

    fn hear(&self, status: StatusCode, fields: &HeaderMap) {
        let length = |(name, value): (&header::HeaderName, &HeaderValue)| {
            name.as_str().len() + value.len() + 4
        };
        let more: usize = fields.iter().map(length).sum();
        self.bytes.fetch_add(more, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_flooded() {
            self.flood.notify_one();
            return;
        }
        // The gate's own question is answered to the gate, and 101 is final.
        let own = matches!(
            status,
            StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS
        );
        if self.wanted && !own {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            heads.push((status, fields.clone()));
            self.waits.store(true, Ordering::Release);
            self.news.notify_one();
        }
    }
}
