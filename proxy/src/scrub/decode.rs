//! Decoding on the side: a compressed body is looked into as it comes, a little at a time, and
//! nothing of the decoded text is kept. Whoever looks is given each piece of it.

use std::io::{self, Write};

use bytes::Bytes;

use super::Reflected;

/// zstd windows up to 8 MiB, as browsers take them.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Compressed bytes that are decoded before the decoded text is looked at: keeps the text short
/// however well it was packed.
const STEP: usize = 512;
/// The most text of one such step, so that no answer makes the gate's memory grow. gzip cannot exceed
/// it.
const MOST: usize = 4 << 20;

/// How much work a body may make by what it unpacks to.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Text of any body that is looked into however well it was packed.
    floor: u64,
    /// Text beyond that, for one packed byte. Lists that repeat one line reach some three hundred with
    /// gzip; what was made to unpack, a thousand.
    ratio: u64,
    /// Text of one body.
    most: u64,
}

const BOUNDS: Bounds = Bounds {
    floor: 1 << 20,
    ratio: 512,
    most: 4 << 30,
};

impl Bounds {
    fn hold(self, packed: u64, text: u64) -> bool {
        text <= self.most && (text <= self.floor || text / self.ratio <= packed)
    }
}

/// The text of one step.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// Whether there would have been more.
    over: bool,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MOST {
            self.over = true;
            return Err(io::Error::other("it unpacks to too much at once"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body being decoded.
pub struct Decoder {
    inner: Inner,
    bounds: Bounds,
    /// Bytes of it so far, and what they unpacked to.
    packed: u64,
    unpacked: u64,
}

impl std::fmt::Debug for Decoder {
    /// Nothing of the text.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decoder").finish_non_exhaustive()
    }
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
    /// For a body of this encoding; nothing for one that cannot be undone.
    #[must_use]
    pub fn of(encoding: &[u8]) -> Option<Self> {
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
            bounds: BOUNDS,
            packed: 0,
            unpacked: 0,
        })
    }

    /// Decodes, and has each piece of the text looked at.
    ///
    /// # Errors
    /// What `look` says, or [`Reflected`] of what cannot be decoded.
    pub fn push(
        &mut self,
        chunk: &Bytes,
        look: &mut dyn FnMut(&[u8]) -> Result<(), Reflected>,
    ) -> Result<(), Reflected> {
        for piece in chunk.chunks(STEP) {
            let decoded = self.decode(piece);
            let Text { bytes, over } = self.take();
            for text in bytes.chunks(64 * 1024) {
                look(text)?;
            }
            let wide = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
            self.packed = self.packed.saturating_add(wide(piece.len()));
            self.unpacked = self.unpacked.saturating_add(wide(bytes.len()));
            if over || !self.bounds.hold(self.packed, self.unpacked) {
                return Err(Reflected::Bomb);
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

    fn take(&mut self) -> Text {
        match &mut self.inner {
            Inner::Deflate => Text::default(),
            Inner::Gzip(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Zlib(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Bare(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Brotli(decoder) => std::mem::take(decoder.get_mut()),
            Inner::Zstd(decoder) => std::mem::take(decoder.get_mut()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::forms::{Forms, Window};
    use super::*;

    const SECRET: &[u8] = b"s3cret-0123456789-abcdefgh";

    /// Blanks, then the secret.
    fn packed(encoding: &str, blanks: u64) -> Vec<u8> {
        let mut text = io::repeat(b' ').take(blanks).chain(SECRET);
        let mut out = Vec::new();
        match encoding {
            "gzip" => {
                let mut to = flate2::write::GzEncoder::new(&mut out, flate2::Compression::best());
                io::copy(&mut text, &mut to).unwrap();
                to.finish().unwrap();
            }
            "deflate" => {
                let mut to = flate2::write::ZlibEncoder::new(&mut out, flate2::Compression::best());
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
            most = most.max(text.bytes.capacity());
            if pushed.is_err() {
                break;
            }
        }
        let mut decoder = Decoder::of(encoding.as_bytes()).unwrap();
        let mut window = Window::default();
        let ended = body.chunks(10_000).try_for_each(|chunk| {
            decoder.push(&Bytes::copy_from_slice(chunk), &mut |text| {
                window.look(&forms, text)
            })
        });
        (ended, most)
    }

    /// Attack: RES-14
    #[test]
    fn what_unpacks_a_thousandfold_takes_no_memory_and_hides_nothing() {
        for encoding in ["gzip", "deflate", "br", "zstd"] {
            let (ended, most) = looked_into(encoding, &packed(encoding, 32 << 20));
            assert_eq!(ended, Err(Reflected::Bomb), "{encoding}");
            assert!(most <= 2 * MOST, "{encoding}: {most}");
            let (ended, _) = looked_into(encoding, &packed(encoding, 1 << 20));
            assert!(
                matches!(ended, Err(Reflected::Found(_))),
                "control: {ended:?}"
            );
        }
    }

    #[test]
    fn the_bounds_are_of_a_proportion_and_of_all() {
        assert!(BOUNDS.hold(1, 1 << 20), "whatever is small");
        assert!(!BOUNDS.hold(1, (1 << 20) + 1));
        assert!(BOUNDS.hold(10_000, 10_000 * 512) && !BOUNDS.hold(10_000, 10_001 * 512));
        assert!(BOUNDS.hold(1 << 40, 4 << 30) && !BOUNDS.hold(1 << 40, (4 << 30) + 1));
        let forms = Forms::of(SECRET, SECRET).unwrap();
        let text: String = (0..100_000).map(|line| format!("{line}: ok\n")).collect();
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        to.write_all(text.as_bytes()).unwrap();
        let body = Bytes::from(to.finish().unwrap());
        for (most, expected) in [(1 << 20, Ok(())), (1 << 19, Err(Reflected::Bomb))] {
            let mut decoder = Decoder::of(b"gzip").unwrap();
            decoder.bounds.most = most;
            let mut window = Window::default();
            let pushed = decoder.push(&body, &mut |text| window.look(&forms, text));
            assert_eq!(pushed, expected);
        }
    }
}
