//! Frames of HTTP/2, as they are counted.

use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::framing::frames::{Framed, Rates, Side};

const RATES: Rates = Rates {
    resets: 3,
    idle_frames: 40,
    block: 400,
    block_time: Duration::from_secs(3600),
};

/// Bytes pass unchanged, and a flood is seen where there is one only, whatever the pieces.
pub(crate) fn check(bytes: &[u8]) {
    for (side, preface) in [(Side::Server, 24), (Side::Client, 0)] {
        let bounded = is_bounded(bytes.get(preface..).unwrap_or_default());
        for step in [1, 7, bytes.len().max(1)] {
            let (passed, flood) = walked(bytes, side, step);
            assert!(bytes.starts_with(&passed));
            if flood.is_none() {
                assert_eq!(passed.len(), bytes.len());
            }
            if bounded {
                assert_eq!(flood, None, "{side:?} in pieces of {step}");
            }
        }
    }
}

fn walked(bytes: &[u8], side: Side, step: usize) -> (Vec<u8>, Option<&'static str>) {
    let (mut framed, alarm) = Framed::new(bytes, side, RATES);
    let mut passed = Vec::new();
    let mut buffer = vec![0; step];
    while alarm.flood().is_none() {
        let mut reading = std::pin::pin!(framed.read(&mut buffer));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let read = match Future::poll(reading.as_mut(), &mut context) {
            std::task::Poll::Ready(Ok(read)) if read > 0 => read,
            std::task::Poll::Ready(_) | std::task::Poll::Pending => break,
        };
        passed.extend_from_slice(&buffer[..read]);
    }
    (passed, alarm.flood())
}

/// Whether these frames stay within all rates, however fast they come: counted in another way.
fn is_bounded(mut bytes: &[u8]) -> bool {
    let (mut resets, mut idle, mut block, mut heads) = (0, 0, 0, 0);
    while let [a, b, c, kind, ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        match kind {
            0 if length == 0 => idle += 1,
            1 | 9 => {
                block += length.max(64);
                heads += 1;
            }
            2 | 6 | 7 | 8 => idle += 1,
            3 => resets += 1,
            4 => idle += 20,
            _ => {}
        }
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    resets <= 3 && idle <= 40 && block <= 400 && heads <= 16
}
