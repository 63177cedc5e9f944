//! Types of the files in messages, detected from their first bytes.

use crate::shared::string_enum;

/// The number of bytes that decide the type. The names in an office document's archive lie within them.
pub const SNIFFED_FILE_BYTES: usize = 8192;

const MB: u64 = 1_048_576;
const KB: u64 = 1024;

/// Brands of the MP4 container that WhatsApp does not accept: images and QuickTime.
const OTHER_BRANDS: [&[u8]; 11] = [
    b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"qt  ", b"crx ",
];

/// The signature of a file in a ZIP archive. The file's name begins 30 bytes after it.
const ZIP_ENTRY: &[u8] = b"PK\x03\x04";
const ZIP_NAME_OFFSET: usize = 30;

/// The signature of the older office documents.
const OLE: &[u8] = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1";

string_enum! {
    /// The type of a file in a message.
    FileKind {
        /// A JPEG or PNG image.
        Image = "image",
        /// An MP4 or 3GPP video.
        Video = "video",
        /// An audio file or voice message.
        Audio = "audio",
        /// A document.
        Document = "document",
        /// A WebP sticker.
        Sticker = "sticker",
    }
}

impl FileKind {
    /// Whether WhatsApp shows a caption with such a file.
    pub fn has_caption(self) -> bool {
        matches!(self, Self::Image | Self::Video | Self::Document)
    }
}

string_enum! {
    /// A type of file that a message may have.
    MessageFileType {
        Jpeg = "image/jpeg",
        Png = "image/png",
        Webp = "image/webp",
        Mp4 = "video/mp4",
        ThreeGpp = "video/3gpp",
        Aac = "audio/aac",
        Amr = "audio/amr",
        Mpeg = "audio/mpeg",
        Mp4Audio = "audio/mp4",
        Ogg = "audio/ogg",
        Pdf = "application/pdf",
        Text = "text/plain",
        Word = "application/msword",
        Excel = "application/vnd.ms-excel",
        PowerPoint = "application/vnd.ms-powerpoint",
        WordXml = "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ExcelXml = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        PowerPointXml = "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    }
}

impl MessageFileType {
    /// The type of a file that starts with `head`, or none if WhatsApp accepts no such file. `name` only distinguishes
    /// the older office documents, which have one signature.
    pub fn detect(head: &[u8], name: &str) -> Option<Self> {
        match head {
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Some(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => mp4_type(brand),
            [b'%', b'P', b'D', b'F', b'-', ..] => Some(Self::Pdf),
            [b'#', b'!', b'A', b'M', b'R', ..] => Some(Self::Amr),
            [b'I', b'D', b'3', ..] => Some(Self::Mpeg),
            // The frame headers of AAC (ADTS) and of MPEG audio layer 3.
            [0xFF, second, ..] if second & 0xF6 == 0xF0 => Some(Self::Aac),
            [0xFF, second, ..] if second & 0xE6 == 0xE2 => Some(Self::Mpeg),
            [b'O', b'g', b'g', b'S', page @ ..] => {
                holds(page.get(..60).unwrap_or(page), b"OpusHead").then_some(Self::Ogg)
            }
            _ if head.starts_with(OLE) => Some(ole_type(name)),
            _ if head.starts_with(ZIP_ENTRY) => zip_type(head),
            _ => is_text(head).then_some(Self::Text),
        }
    }

    pub fn kind(self) -> FileKind {
        match self {
            Self::Jpeg | Self::Png => FileKind::Image,
            Self::Webp => FileKind::Sticker,
            Self::Mp4 | Self::ThreeGpp => FileKind::Video,
            Self::Aac | Self::Amr | Self::Mpeg | Self::Mp4Audio | Self::Ogg => FileKind::Audio,
            Self::Pdf
            | Self::Text
            | Self::Word
            | Self::Excel
            | Self::PowerPoint
            | Self::WordXml
            | Self::ExcelXml
            | Self::PowerPointXml => FileKind::Document,
        }
    }

    /// The size limit of an upload in bytes.
    pub fn limit(self) -> u64 {
        match self.kind() {
            FileKind::Image => 5 * MB,
            FileKind::Video | FileKind::Audio => 16 * MB,
            FileKind::Document => 100 * MB,
            FileKind::Sticker => 500 * KB,
        }
    }

    /// The largest size limit of all types, in bytes.
    pub fn largest() -> u64 {
        Self::ALL.iter().map(|kind| kind.limit()).max().unwrap_or_default()
    }

    /// The file name extension of an upload to WhatsApp.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Mp4 => "mp4",
            Self::ThreeGpp => "3gp",
            Self::Aac => "aac",
            Self::Amr => "amr",
            Self::Mpeg => "mp3",
            Self::Mp4Audio => "m4a",
            Self::Ogg => "ogg",
            Self::Pdf => "pdf",
            Self::Text => "txt",
            Self::Word => "doc",
            Self::Excel => "xls",
            Self::PowerPoint => "ppt",
            Self::WordXml => "docx",
            Self::ExcelXml => "xlsx",
            Self::PowerPointXml => "pptx",
        }
    }
}

fn mp4_type(brand: &[u8]) -> Option<MessageFileType> {
    if brand.len() < 4 || OTHER_BRANDS.iter().any(|other| brand.starts_with(other)) {
        return None;
    }
    let is = |prefix: &[u8]| brand.starts_with(prefix);
    Some(if is(b"3g") {
        MessageFileType::ThreeGpp
    } else if is(b"M4A") || is(b"M4B") {
        MessageFileType::Mp4Audio
    } else {
        MessageFileType::Mp4
    })
}

fn ole_type(name: &str) -> MessageFileType {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "xls" => MessageFileType::Excel,
        "ppt" => MessageFileType::PowerPoint,
        _ => MessageFileType::Word,
    }
}

/// The directory of its parts names the office document in an archive.
fn zip_type(head: &[u8]) -> Option<MessageFileType> {
    let entries = head.windows(ZIP_ENTRY.len()).enumerate();
    let mut names = entries.filter_map(|(at, bytes)| (bytes == ZIP_ENTRY).then(|| head.get(at + ZIP_NAME_OFFSET..))?);
    names.find_map(|name| {
        let parts: [(&[u8], MessageFileType); 3] = [
            (b"word/", MessageFileType::WordXml),
            (b"xl/", MessageFileType::ExcelXml),
            (b"ppt/", MessageFileType::PowerPointXml),
        ];
        let found = parts.into_iter().find(|(part, _)| name.starts_with(part));
        found.map(|(_, kind)| kind)
    })
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Whether the bytes are UTF-8 without control characters. The last character may be cut off.
fn is_text(head: &[u8]) -> bool {
    let is_cut_off = |error: &std::str::Utf8Error| error.error_len().is_none() && head.len() >= SNIFFED_FILE_BYTES;
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if is_cut_off(&error) => {
            let whole = head.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.contains(|c: char| c.is_control() && !c.is_whitespace())
}
