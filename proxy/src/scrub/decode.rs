//! Decoding on the side: a compressed body is looked into as it comes, a little at a time, and
//! nothing of the decoded text is kept.

use std::io::{self, Write};

use bytes::Bytes;

use super::Reflected;
use super::forms::{Forms, Window};

/// zstd windows up to 8 MiB, as browsers take them.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Compressed bytes that are decoded before the decoded text is looked at: keeps the text short
/// however well it was packed.
const STEP: usize = 512;

/// A body being decoded.
pub(super) struct Decoder {
    inner: Inner,
    window: Window,
}

enum Inner {
    Gzip(flate2::write::MultiGzDecoder<Vec<u8>>),
    /// The first byte says whether it is zlib's form or a bare stream.
    Deflate,
    Zlib(flate2::write::ZlibDecoder<Vec<u8>>),
    Bare(flate2::write::DeflateDecoder<Vec<u8>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Decoder<'static, Vec<u8>>),
}

impl Decoder {
    pub(super) fn of(encoding: &[u8]) -> Option<Self> {
        let inner = match encoding {
            b"gzip" | b"x-gzip" => Inner::Gzip(flate2::write::MultiGzDecoder::new(Vec::new())),
            b"deflate" => Inner::Deflate,
            b"br" => Inner::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096))),
            b"zstd" => {
                let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).ok()?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).ok()?;
                Inner::Zstd(decoder)
            }
            _ => return None,
        };
        Some(Self {
            inner,
            window: Window::default(),
        })
    }

    /// How much of the decoded text may be the beginning of a form.
    pub(super) fn pending(&self) -> usize {
        self.window.pending()
    }

    /// Decodes and looks.
    pub(super) fn push(&mut self, forms: &Forms, chunk: &Bytes) -> Result<(), Reflected> {
        for piece in chunk.chunks(STEP) {
            let decoded = self.decode(piece);
            for text in self.take().chunks(64 * 1024) {
                self.window.look(forms, text)?;
            }
            // What the gate cannot decode a client may still read in part.
            decoded.map_err(|_| Reflected::Opaque)?;
        }
        Ok(())
    }

    fn decode(&mut self, piece: &[u8]) -> io::Result<()> {
        if let (Inner::Deflate, Some(first)) = (&self.inner, piece.first()) {
            self.inner = if first & 0x0f == 8 {
                Inner::Zlib(flate2::write::ZlibDecoder::new(Vec::new()))
            } else {
                Inner::Bare(flate2::write::DeflateDecoder::new(Vec::new()))
            };
        }
        match &mut self.inner {
            Inner::Deflate => Ok(()),
            Inner::Gzip(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Inner::Zlib(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Inner::Bare(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Inner::Brotli(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Inner::Zstd(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match &mut self.inner {
            Inner::Deflate => Vec::new(),
            Inner::Gzip(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Zlib(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Bare(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Brotli(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Zstd(decoder) => std::mem::take(decoder.get_mut()),
        }
    }
}
