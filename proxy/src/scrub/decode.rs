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
/// The most text of one such step. gzip cannot exceed it; what zstd or brotli pack tighter than
/// eight thousand to one is refused, so that no answer makes the gate's memory grow.
const MOST: usize = 4 << 20;

/// The text of one step.
#[derive(Default)]
struct Text(Vec<u8>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(io::Error::other("it unpacks to too much at once"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body being decoded.
pub(super) struct Decoder {
    inner: Inner,
    window: Window,
}

enum Inner {
    Gzip(flate2::write::MultiGzDecoder<Text>),
    /// The first byte says whether it is zlib's form or a bare stream.
    Deflate,
    Zlib(flate2::write::ZlibDecoder<Text>),
    Bare(flate2::write::DeflateDecoder<Text>),
    Brotli(Box<brotli::DecompressorWriter<Text>>),
    Zstd(zstd::stream::write::Decoder<'static, Text>),
}

impl Decoder {
    pub(super) fn of(encoding: &[u8]) -> Option<Self> {
        let inner = match encoding {
            b"gzip" | b"x-gzip" => Inner::Gzip(flate2::write::MultiGzDecoder::new(Text::default())),
            b"deflate" => Inner::Deflate,
            b"br" => Inner::Brotli(Box::new(brotli::DecompressorWriter::new(
                Text::default(),
                4096,
            ))),
            b"zstd" => {
                let mut decoder = zstd::stream::write::Decoder::new(Text::default()).ok()?;
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
                Inner::Zlib(flate2::write::ZlibDecoder::new(Text::default()))
            } else {
                Inner::Bare(flate2::write::DeflateDecoder::new(Text::default()))
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
            Inner::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().0),
            Inner::Zlib(decoder) => std::mem::take(&mut decoder.get_mut().0),
            Inner::Bare(decoder) => std::mem::take(&mut decoder.get_mut().0),
            Inner::Brotli(decoder) => std::mem::take(&mut decoder.get_mut().0),
            Inner::Zstd(decoder) => std::mem::take(&mut decoder.get_mut().0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const SECRET: &[u8] = b"s3cret-0123456789-abcdefgh";

    /// Blanks, then the secret.
    fn packed(encoding: &str, blanks: u64) -> Vec<u8> {
        let mut text = io::repeat(b' ').take(blanks).chain(SECRET);
        let mut out = Vec::new();
        match encoding {
            "gzip" => {
                let mut to = flate2::write::GzEncoder::new(&mut out, flate2::Compression::fast());
                io::copy(&mut text, &mut to).unwrap();
                to.finish().unwrap();
            }
            "br" => {
                let mut to = brotli::CompressorWriter::new(&mut out, 4096, 3, 22);
                io::copy(&mut text, &mut to).unwrap();
                drop(to);
            }
            _ => zstd::stream::copy_encode(&mut text, &mut out, 3).unwrap(),
        }
        out
    }

    /// How it ends, and the most memory that was kept for text at once.
    fn looked_into(encoding: &str, body: &[u8]) -> (Result<(), Reflected>, usize) {
        let forms = Forms::of(SECRET, SECRET).unwrap();
        let mut decoder = Decoder::of(encoding.as_bytes()).unwrap();
        let mut most = 0;
        for piece in body.chunks(STEP) {
            let pushed = decoder.decode(piece);
            let text = decoder.take();
            most = most.max(text.capacity());
            if pushed.is_err() {
                break;
            }
        }
        let mut decoder = Decoder::of(encoding.as_bytes()).unwrap();
        let ended = body
            .chunks(10_000)
            .try_for_each(|chunk| decoder.push(&forms, &Bytes::copy_from_slice(chunk)));
        (ended, most)
    }

    /// Attack: RES-14
    #[test]
    fn what_unpacks_a_thousandfold_takes_no_memory_and_hides_nothing() {
        // gzip packs a thousand to one at the most: it is looked through to its end.
        let (ended, most) = looked_into("gzip", &packed("gzip", 32 << 20));
        assert!(matches!(ended, Err(Reflected::Found(_))), "{ended:?}");
        assert!(most <= 2 * MOST, "{most}");
        for encoding in ["br", "zstd"] {
            let bomb = packed(encoding, 32 << 20);
            assert!(bomb.len() < 8192, "{encoding}: {}", bomb.len());
            let (ended, most) = looked_into(encoding, &bomb);
            assert_eq!(ended, Err(Reflected::Opaque), "{encoding}");
            assert!(most <= 2 * MOST, "{encoding}: {most}");
            let (ended, _) = looked_into(encoding, &packed(encoding, 1 << 20));
            assert!(
                matches!(ended, Err(Reflected::Found(_))),
                "control: {ended:?}"
            );
        }
    }
}
