//! Checks links between documentation pages: the file and the heading must exist.

use std::path::Path;

use super::Finding;

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

/// The lines of a page outside code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((at + 1, line)),
            (Some(_), _) => {}
        }
        None
    })
}

/// Every link's target, with its line: `[text](target "title")` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = line
            .trim_start()
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        for target in inline.chain(defined) {
            if let Some(target) = target.split_whitespace().next() {
                found.push((number, target.trim_matches(['<', '>']).to_owned()));
            }
        }
    }
    found
}

/// Removes code spans: links inside them are examples.
fn without_code(line: &str) -> String {
    line.split('`')
        .enumerate()
        .map(|(at, part)| if at % 2 == 0 { part } else { "" })
        .collect()
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with([' ', '\t']) {
            continue;
        }
        let anchor = anchor(title.trim());
        // A repeated heading gets a number.
        let before = seen.iter().filter(|earlier| **earlier == anchor).count();
        found.push(if before == 0 {
            anchor.clone()
        } else {
            format!("{anchor}-{before}")
        });
        seen.push(anchor);
    }
    found
}

/// A heading as an anchor: lower case, without punctuation, with a hyphen for every space.
fn anchor(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    // Of a link, only the text counts.
    while let Some((head, tail)) = rest.split_once("](") {
        text.push_str(head);
        rest = tail.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let letters = text
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
        let text = "[a](b.md) and [c](d.md#e \"title\") `[no](x)`\n```text\n[no](y)\n```\n[f]: g.md\n";
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
        let root = std::env::temp_dir().join(format!("recado-links-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("README.md"), "# Read me\n").unwrap();
        let text = "# Top\n[ok](../README.md) [ok](../README.md#read-me) [ok](#top) [ok](https://example.com/x#y)\n\
                    [dead](gone.md)\n[dead](../README.md#gone)\n[dead](#gone)\n[dead](/README.md)\n";
        fs::write(root.join("docs/page.md"), text).unwrap();
        let found = check(&root, "docs/page.md", text);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
