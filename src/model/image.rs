//! Images that ride beside a text.

use std::fmt;
use std::sync::Arc;

/// An image that a model may look at, of a kind that all providers take.
///
/// Cheap to clone: its bytes are shared.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    media_type: &'static str,
    bytes: Arc<[u8]>,
}

/// Bytes that are no [`Image`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// They begin like none of the kinds that are taken.
    #[error("not an image of a kind that models take: PNG, JPEG, GIF or WebP")]
    Kind,
    /// There are too many.
    #[error("an image of {bytes} bytes: models take at most {} bytes, so make it smaller", Image::MAX_BYTES)]
    Size {
        /// How many.
        bytes: usize,
    },
}

impl Image {
    /// The largest image that is taken, in bytes. The strictest provider takes 5 MiB, and counts them as base64:
    /// <https://docs.anthropic.com/en/docs/build-with-claude/vision>
    pub const MAX_BYTES: usize = (5 << 20) / 4 * 3;

    /// The image that these bytes are. What kind it is, they say themselves.
    ///
    /// # Errors
    ///
    /// They are no PNG, JPEG, GIF or WebP, or more than [`Image::MAX_BYTES`].
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self, ImageError> {
        let bytes = bytes.into();
        let media_type = media_type(&bytes).ok_or(ImageError::Kind)?;
        if bytes.len() > Self::MAX_BYTES {
            return Err(ImageError::Size { bytes: bytes.len() });
        }
        Ok(Self { media_type, bytes })
    }

    /// Its kind, such as `image/png`.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        self.media_type
    }

    /// The file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {} bytes)", self.media_type, self.bytes.len())
    }
}

/// The images beside a text: the first [`Images::MAX`] that came, and how many more there were.
///
/// Small where there are none, as nearly always.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Images(Option<Box<Beside>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Beside {
    shown: Vec<Image>,
    left_out: u32,
}

impl Images {
    /// So many are shown beside one text.
    pub const MAX: usize = 8;

    /// Adds one. If there are [`Images::MAX`], it is only counted.
    pub fn push(&mut self, image: Image) {
        let some = self.0.get_or_insert_default();
        if some.shown.len() < Self::MAX {
            some.shown.push(image);
        } else {
            some.left_out = some.left_out.saturating_add(1);
        }
    }

    /// Adds those of another text, as far as there is room.
    pub fn append(&mut self, others: Self) {
        let Some(others) = others.0 else { return };
        others.shown.into_iter().for_each(|image| self.push(image));
        if others.left_out > 0 {
            let left_out = &mut self.0.get_or_insert_default().left_out;
            *left_out = left_out.saturating_add(others.left_out);
        }
    }

    /// Those that are shown, in the order in which they came.
    #[must_use]
    pub fn shown(&self) -> &[Image] {
        self.0.as_ref().map_or(&[], |some| &some.shown)
    }

    /// How many more there were.
    #[must_use]
    pub fn left_out(&self) -> u32 {
        self.0.as_ref().map_or(0, |some| some.left_out)
    }

    /// True if there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps the latest of those that are shown, as long as `keep` says so, and counts the others.
    pub(crate) fn keep_latest(&mut self, mut keep: impl FnMut(&Image) -> bool) {
        let Some(some) = &mut self.0 else { return };
        let kept = some.shown.iter().rev().take_while(|image| keep(image)).count();
        let dropped = some.shown.len() - kept;
        some.shown.drain(..dropped);
        some.left_out = some.left_out.saturating_add(u32::try_from(dropped).unwrap_or(u32::MAX));
    }
}

impl FromIterator<Image> for Images {
    fn from_iter<I: IntoIterator<Item = Image>>(images: I) -> Self {
        let mut all = Self::default();
        images.into_iter().for_each(|image| all.push(image));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gif(last: u8) -> Image {
        Image::new([&b"GIF89a"[..], &[last]].concat()).unwrap()
    }

    #[test]
    fn an_image_is_what_its_bytes_are() {
        let of = |bytes: &[u8]| Image::new(bytes).map(|image| image.media_type());
        assert_eq!(of(b"\x89PNG\r\n\x1a\n...."), Ok("image/png"));
        assert_eq!(of(b"\xff\xd8\xff\xe0"), Ok("image/jpeg"));
        assert_eq!(of(b"GIF87a"), Ok("image/gif"));
        assert_eq!(of(b"RIFF\0\0\0\0WEBPVP8 "), Ok("image/webp"));
        for none in [&b""[..], b"\x89PNG", b"RIFF\0\0\0\0WAVE", b"<svg>", b"BM"] {
            assert_eq!(of(none), Err(ImageError::Kind));
        }
        let mut large = b"GIF89a".to_vec();
        large.resize(Image::MAX_BYTES, 0);
        assert!(Image::new(large.clone()).is_ok());
        large.push(0);
        let refused = Image::new(large).unwrap_err().to_string();
        assert_eq!(
            refused,
            "an image of 3932161 bytes: models take at most 3932160 bytes, so make it smaller"
        );
        assert_eq!(format!("{:?}", gif(0)), "Image(image/gif, 7 bytes)");
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut images: Images = (0..10).map(gif).collect();
        assert_eq!((images.shown().len(), images.left_out()), (8, 2));
        let mut few: Images = (0..7).map(gif).collect();
        few.append(images.clone());
        assert_eq!((few.shown().len(), few.left_out(), &few.shown()[7]), (8, 9, &gif(0)));
        let mut room = 3;
        images.keep_latest(|_| {
            room -= 1;
            room >= 0
        });
        assert_eq!((images.shown(), images.left_out()), (&[gif(5), gif(6), gif(7)][..], 7));
        assert_eq!(size_of::<Images>(), size_of::<usize>());
        let mut none = Images::default();
        none.append(Images::default());
        assert!(none.is_empty() && none.shown().is_empty() && none.left_out() == 0);
    }
}
