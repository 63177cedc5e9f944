//! Checks links between documentation pages: the file and the heading must exist.

use std::ops::Range;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::finding::Finding;

pub(super) fn check(root: &Path, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(text) {
        if is_external(&target) {
            continue;
        }
        let (file, anchor) = target
            .split_once('#')
            .map_or((target.as_str(), None), |(file, at)| (file, Some(at)));
        let full = match file {
            "" => root.join(path),
            file => root.join(path).with_file_name("").join(file.replace("%20", " ")),
        };
        if file.starts_with('/') || !full.exists() {
            findings.push(Finding::new(
                path,
                line,
                format!("the target of the link {target} does not exist"),
            ));
            continue;
        }
        let Some(anchor) = anchor.filter(|_| full.extension().is_some_and(|extension| extension == "md")) else {
            continue;
        };
        let page = if file.is_empty() {
            text.to_owned()
        } else {
            std::fs::read_to_string(&full).unwrap_or_default()
        };
        if !anchors(&page).iter().any(|existing| existing == anchor) {
            findings.push(Finding::new(
                path,
                line,
                format!("the link {target} names a heading that does not exist"),
            ));
        }
    }
    findings
}

/// Whether the target has a URL scheme. Such links are not checked.
fn is_external(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// Every link's target, with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let link = |(event, range): (Event<'_>, Range<usize>)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let before = text.get(..range.start).unwrap_or_default();
            Some((before.matches('\n').count() + 1, dest_url.into_string()))
        }
        _ => None,
    };
    parse(text).into_offset_iter().filter_map(link).collect()
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut title = String::new();
    for event in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => title.clear(),
            Event::Text(part) | Event::Code(part) => title.push_str(&part),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&title);
                // A repeated heading gets a number.
                let before = seen.iter().filter(|earlier| **earlier == anchor).count();
                found.push(match before {
                    0 => anchor.clone(),
                    _ => format!("{anchor}-{before}"),
                });
                seen.push(anchor);
            }
            _ => {}
        }
    }
    found
}

/// A heading as an anchor: lower case, without punctuation, with a hyphen for every space.
fn anchor(title: &str) -> String {
    let letters = title
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters
        .flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn links_are_read_outside_code() {
        let text = "[a](b.md) and [c](d.md#e \"title\") `[no](x)`\n```text\n[no](y)\n```\n[f] text\n\n[f]: g.md\n";
        let expected = [(1, "b.md"), (1, "d.md#e"), (5, "g.md")].map(|(line, target)| (line, target.to_owned()));
        assert_eq!(links(text), expected);
    }

    #[test]
    fn headings_become_anchors() {
        let text = "# One `two`: three?\n## Same\n## Same\n#no\n```sh\n# comment\n```\n### [A link](x.md) in_it\n";
        assert_eq!(anchors(text), ["one-two-three", "same", "same-1", "a-link-in_it"]);
    }

    #[test]
    fn dead_links_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("README.md"), "# Read me\n").unwrap();
        let text = "# Top\n[ok](../README.md) [ok](../README.md#read-me) [ok](#top) [ok](https://example.com/x#y)\n\
                    [dead](gone.md)\n[dead](../README.md#gone)\n[dead](#gone)\n[dead](/README.md)\n";
        fs::write(root.join("docs/page.md"), text).unwrap();
        let found = check(root, "docs/page.md", text);
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
