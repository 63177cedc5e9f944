//! Extracts the visible text of an HTML page.

use html5gum::{StartTag, Token, Tokenizer};
use recado_domain::brand::PageText;

/// Longest extracted text in characters, enough to describe a business.
const MAX_TEXT_CHARS: usize = 24_000;

/// Elements that are skipped with their content, since a visitor does not see them.
const HIDDEN: [&[u8]; 12] = [
    b"script",
    b"style",
    b"noscript",
    b"template",
    b"svg",
    b"math",
    b"iframe",
    b"object",
    b"canvas",
    b"select",
    b"textarea",
    b"noembed",
];

/// Inline elements: they do not end a line. Every other element does.
const INLINE: [&[u8]; 24] = [
    b"a", b"abbr", b"b", b"bdi", b"bdo", b"big", b"cite", b"code", b"data", b"del", b"em", b"font", b"i", b"img",
    b"ins", b"kbd", b"label", b"mark", b"q", b"s", b"small", b"span", b"strong", b"u",
];

pub(super) fn from_html(html: &str) -> PageText {
    let mut reader = Reader::default();
    for token in Tokenizer::new(html) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => reader.start_tag(&tag),
            Token::EndTag(tag) => reader.end_tag(&tag.name),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    reader.into_page()
}

pub(super) fn from_plain(plain: &str) -> PageText {
    let mut lines = Lines::default();
    for line in plain.lines() {
        lines.push(line);
        lines.end_line();
    }
    PageText {
        text: lines.into_text(),
        ..PageText::default()
    }
}

#[derive(Default)]
struct Reader {
    title: Lines,
    in_title: bool,
    site_name: Option<String>,
    description: Option<String>,
    body: Lines,
    /// The hidden element that encloses the current position, and how many elements of its name are open.
    hidden: Option<(Vec<u8>, usize)>,
}

impl Reader {
    fn start_tag(&mut self, tag: &StartTag<()>) {
        if let Some((name, depth)) = &mut self.hidden {
            if **name == *tag.name.as_slice() && !tag.self_closing {
                *depth += 1;
            }
            return;
        }
        let name = tag.name.as_slice();
        match name {
            name if HIDDEN.contains(&name) => {
                if !tag.self_closing {
                    self.hidden = Some((name.to_vec(), 1));
                }
            }
            // Only the first title is the page's. Later ones belong to images.
            b"title" => self.in_title = self.title.is_empty(),
            b"meta" => self.meta(tag),
            b"img" => {
                self.body.push(" ");
                self.body.push(&attribute(tag, b"alt"));
                self.body.push(" ");
            }
            name if INLINE.contains(&name) => {}
            _ => self.body.end_line(),
        }
    }

    fn end_tag(&mut self, name: &[u8]) {
        if let Some((open, depth)) = &mut self.hidden {
            if open.as_slice() == name {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden = None;
                }
            }
            return;
        }
        if name == b"title" {
            self.in_title = false;
        } else if !INLINE.contains(&name) {
            self.body.end_line();
        }
    }

    fn text(&mut self, text: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.in_title {
            self.title.push(text);
        } else {
            self.body.push(text);
        }
    }

    fn meta(&mut self, tag: &StartTag<()>) {
        let name = attribute(tag, b"name") + &attribute(tag, b"property");
        let content = one_line(&attribute(tag, b"content"));
        if content.is_empty() {
            return;
        }
        match name.to_ascii_lowercase().as_str() {
            "description" => self.description = Some(content),
            "og:description" => self.description = self.description.take().or(Some(content)),
            "og:site_name" => self.site_name = Some(content),
            _ => {}
        }
    }

    fn into_page(self) -> PageText {
        let title = Some(one_line(&self.title.into_text())).filter(|title| !title.is_empty());
        let facts = [
            ("title", title.clone()),
            ("site_name", self.site_name),
            ("description", self.description),
        ];
        let mut lines = Lines::default();
        for (label, value) in facts {
            if let Some(value) = value {
                lines.push(&format!("{label}: {value}"));
                lines.end_line();
            }
        }
        lines.append(&self.body.into_text());
        PageText {
            url: String::new(),
            title,
            text: lines.into_text(),
        }
    }
}

/// The value of an attribute; empty if it is absent.
fn attribute(tag: &StartTag<()>, name: &[u8]) -> String {
    let value = tag.attributes.get(name);
    value.map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lines of text without control characters, with single spaces, cut off at `MAX_TEXT_CHARS`.
#[derive(Default)]
struct Lines {
    text: String,
    chars: usize,
    /// The separator to write before the next character.
    separator: Option<char>,
}

impl Lines {
    fn push(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.separator = self.separator.or(Some(' '));
            } else if !c.is_control() {
                if let Some(separator) = self.separator.take().filter(|_| !self.text.is_empty()) {
                    self.push_char(separator);
                }
                self.push_char(c);
            }
        }
    }

    fn push_char(&mut self, c: char) {
        if self.chars < MAX_TEXT_CHARS {
            self.text.push(c);
            self.chars += 1;
        }
    }

    fn end_line(&mut self) {
        self.separator = Some('\n');
    }

    fn append(&mut self, text: &str) {
        for line in text.lines() {
            self.push(line);
            self.end_line();
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn into_text(self) -> String {
        self.text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_gives_visible_text_without_markup() {
        let page = from_html(
            "<!doctype html><html><head><title> Padaria\n Aurora </title><meta charset=utf-8>\
             <meta name=Description content='Pães  &amp; bolos'><meta property='og:site_name' content=\"Aurora\">\
             <meta property=og:description content=other><style>p { color: red }</style>\
             <script>if (a < b) { document.write('<p>no</p>') }</script></head><body>\
             <!-- unseen --><h1>Pão <b>de</b> <i>queijo</i></h1><p>Feito&nbsp;hoje.<br>Todo   dia.\
             <img src=x alt='Nossa loja'></p><svg><title>Icon</title><svg></svg><text>no</text></svg>\
             <noscript>no</noscript><template><p>no</p></template><ul><li>Um<li>Dois</ul>\
             <iframe src=x>no</iframe><select><option>no</select>\u{7}<p>Fim</body></html>",
        );
        assert_eq!(page.title.as_deref(), Some("Padaria Aurora"));
        let lines: Vec<&str> = page.text.lines().collect();
        assert_eq!(
            lines,
            [
                "title: Padaria Aurora",
                "site_name: Aurora",
                "description: Pães & bolos",
                "Pão de queijo",
                "Feito hoje.",
                "Todo dia. Nossa loja",
                "Um",
                "Dois",
                "Fim",
            ]
        );
    }

    #[test]
    fn broken_markup_gives_its_readable_text() {
        for (html, text) in [
            ("", ""),
            ("   \n\t ", ""),
            ("no markup", "no markup"),
            ("<p>a<script>never closed <p>b", "a"),
            ("<p <p>>a</ p></q>b", ">ab"),
            ("<svg><svg></svg>a</svg>b", "b"),
            ("<p>a</script>b", "a\nb"),
            ("<a href='x'", ""),
            ("&lt;b&gt; &#0; &#x110000; &unknown;", "<b> \u{fffd} \u{fffd} &unknown;"),
            ("<title>a</title><title>b</title>", "title: a\nb"),
        ] {
            assert_eq!(from_html(html).text, text, "{html}");
        }
        let deep = format!("{}a", "<div><span>".repeat(50_000));
        assert_eq!(from_html(&deep).text, "a");
    }

    #[test]
    fn long_text_is_cut_off() {
        let long = "ã".repeat(30_000);
        for page in [
            from_html(&long),
            from_plain(&long),
            from_html(&format!("<title>{long}</title>{long}")),
        ] {
            assert_eq!(page.text.chars().count(), MAX_TEXT_CHARS);
        }
    }

    #[test]
    fn plain_text_keeps_its_lines() {
        let page = from_plain(" Um \r\n\r\n<b>Dois</b>\u{0}\n");
        assert_eq!((page.text.as_str(), page.title), ("Um\n<b>Dois</b>", None));
    }
}
