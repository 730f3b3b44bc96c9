//! Unpacking a body that is read whole, within a bound.

use std::io::Read;

/// zstd windows up to 8 MiB, as HTTP has them.
const ZSTD_WINDOW_LOG: u32 = 23;

/// What came of unpacking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unpacked {
    /// The text.
    Text(Vec<u8>),
    /// It unpacks to more than the bound.
    Beyond,
    /// It is not what it says; says why.
    Unreadable(&'static str),
}

/// Unpacks `bytes` by the one `Content-Encoding` that HTTP names.
pub(super) fn unpack(encoding: &[u8], bytes: &[u8], most: u64) -> Unpacked {
    match encoding.to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => {
            let mut from = flate2::bufread::GzDecoder::new(bytes);
            let text = all(&mut from, most);
            only(text, from.into_inner())
        }
        // Without the frame of zlib it would be told from a broken one by guessing.
        b"deflate" => {
            let mut from = flate2::bufread::ZlibDecoder::new(bytes);
            let text = all(&mut from, most);
            only(text, from.into_inner())
        }
        b"br" => {
            let mut rest = bytes;
            let text = all(&mut brotli::Decompressor::new(&mut rest, 4096), most);
            only(text, rest)
        }
        b"zstd" => {
            let Ok(from) = zstd::stream::read::Decoder::with_buffer(bytes) else {
                return Unpacked::Unreadable("it is not packed as it says");
            };
            let mut from = from.single_frame();
            if from.window_log_max(ZSTD_WINDOW_LOG).is_err() {
                return Unpacked::Unreadable("it is not packed as it says");
            }
            let text = all(&mut from, most);
            only(text, from.finish())
        }
        _ => Unpacked::Unreadable("it is packed in a way that the gate does not unpack"),
    }
}

fn all(from: &mut impl Read, most: u64) -> Unpacked {
    let mut text = Vec::new();
    match from.take(most.saturating_add(1)).read_to_end(&mut text) {
        Ok(_) if u64::try_from(text.len()).unwrap_or(u64::MAX) > most => Unpacked::Beyond,
        Ok(_) => Unpacked::Text(text),
        Err(_) => Unpacked::Unreadable("it is not packed as it says"),
    }
}

/// What stands behind a packed text some servers read and others do not.
fn only(text: Unpacked, rest: &[u8]) -> Unpacked {
    if matches!(text, Unpacked::Text(_)) && !rest.is_empty() {
        return Unpacked::Unreadable("something stands behind what is packed");
    }
    text
}
