//! File types, detected from the first bytes of a file, never from its name.

use crate::shared::string_enum;

/// The number of bytes that decide the type.
pub const SNIFFED_BYTES: usize = 12;

const MB: u64 = 1_048_576;

/// Brands of the MP4 container that are not MP4 videos: images, audio and QuickTime.
const OTHER_BRANDS: [&[u8]; 12] = [
    b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"qt  ", b"M4A ", b"crx ",
];

string_enum! {
    /// A type of file that may be uploaded.
    MediaType {
        /// A JPEG image.
        Jpeg = "image/jpeg",
        /// A PNG image.
        Png = "image/png",
        /// A WebP image. WhatsApp does not accept it as a header.
        Webp = "image/webp",
        /// An MP4 video.
        Mp4 = "video/mp4",
        /// A PDF document.
        Pdf = "application/pdf",
    }
}

impl MediaType {
    /// The type of a file that starts with `head`, or none if it is not allowed. Only `head` is read and images are
    /// never decoded, so a false image size costs nothing.
    pub fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Some(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => {
                let is_other_brand =
                    brand.len() < 4 || OTHER_BRANDS.iter().any(|other_brand| brand.starts_with(other_brand));
                (!is_other_brand).then_some(Self::Mp4)
            }
            [b'%', b'P', b'D', b'F', b'-', ..] => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The file name extension of a stored file.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Mp4 => "mp4",
            Self::Pdf => "pdf",
        }
    }

    /// The type of a stored file, by its file name extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.extension() == extension)
    }

    /// The size limit in bytes.
    pub fn limit(self) -> u64 {
        match self {
            Self::Jpeg | Self::Png | Self::Webp => 5 * MB,
            Self::Mp4 => 16 * MB,
            Self::Pdf => 100 * MB,
        }
    }

    /// The largest size limit of all types, in bytes.
    pub fn largest() -> u64 {
        Self::ALL.iter().map(|kind| kind.limit()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn media_type_is_detected_from_first_bytes() {
        let cases: [(&[u8], Option<MediaType>); 16] = [
            (b"\xFF\xD8\xFF\xE0 jpeg", Some(MediaType::Jpeg)),
            (b"\xFF\xD8", None),
            (b"\x89PNG\r\n\x1A\n....", Some(MediaType::Png)),
            (b"\x89PNG\n\x1A\n.....", None),
            (b"RIFF\x01\0\0\0WEBPVP8", Some(MediaType::Webp)),
            (b"RIFF\x01\0\0\0WAVEfmt", None),
            (b"\0\0\0\x20ftypisom....", Some(MediaType::Mp4)),
            (b"\0\0\0\x20ftypmp42....", Some(MediaType::Mp4)),
            (b"\0\0\0\x20ftypheic....", None),
            (b"\0\0\0\x20ftypavif....", None),
            (b"\0\0\0\x20ftyp", None),
            (b"%PDF-1.7", Some(MediaType::Pdf)),
            (b" %PDF-1.7", None),
            (b"<html><script>", None),
            (b"<svg xmlns=", None),
            (b"", None),
        ];
        for (head, kind) in cases {
            assert_eq!(MediaType::detect(head), kind, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn media_type_is_found_by_its_extension() {
        for &kind in MediaType::ALL {
            assert_eq!(MediaType::from_extension(kind.extension()), Some(kind));
        }
        assert_eq!(MediaType::from_extension("html"), None);
        assert_eq!(MediaType::largest(), 104_857_600);
    }

    proptest! {
        #[test]
        fn media_type_depends_only_on_sniffed_bytes(head in proptest::collection::vec(any::<u8>(), 0..40)) {
            let sniffed = &head[..head.len().min(SNIFFED_BYTES)];
            prop_assert_eq!(MediaType::detect(&head), MediaType::detect(sniffed));
        }
    }
}
